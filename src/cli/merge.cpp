#include <cstdio>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "kernels/common/error.h"
#include "models/ops/core/parallel.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/cli/adapter_base.h"
#include "src/cli/commands.h"
#include "src/cli/merge_probe.h"
#include "src/hf/adapter/adapter.h"
#include "src/hf/adapter/adapter_merge.h"
#include "src/hf/adapter/missing_layers.h"
#include "src/io/files.h"
#include "src/io/json.h"
#include "src/io/run_folder.h"
#include "src/train/machine/device.h"

namespace lft::cli {
namespace {

struct MergeOptions {
  std::string model, adapter, out;
};

/// The dtype that rounds the most: of the computation, or of a merged tensor.
io::DType coarsest(io::DType computed, const std::set<io::DType>& merged) {
  for (const io::DType dtype : merged) {
    if (rounding_bound(dtype).relative_max_abs > rounding_bound(computed).relative_max_abs)
      computed = dtype;
  }
  return computed;
}

void write_report(const std::string& out, const ProbeDifference& difference,
                  const RoundingBound& bound, io::DType dtype) {
  io::Json report = io::read_json_file(out + "/merge_report.json");
  report["stored_dtype"] = io::dtype_name(dtype);
  report["positions"] = difference.positions;
  report["max_abs_diff"] = difference.max_abs;
  report["largest_logit"] = difference.largest_logit;
  report["mean_kl"] = difference.mean_kl;
  report["top1_agreement"] = difference.top1_agreement;
  report["bound"] = {{"max_abs_diff", bound.relative_max_abs * difference.largest_logit},
                     {"mean_kl", bound.mean_kl}};
  io::write_file_atomic(out + "/merge_report.json", report.dump(2) + "\n");
}

void merge(const MergeOptions& options) {
  const hf::AdapterDir adapter = hf::AdapterDir::open(options.adapter);
  const std::string model = base_of(adapter, options.model);
  const at::Device device = train::default_device();  // before threads start: see its declaration
  std::future<Probed> pass;                           // runs while merged tensors are written
  hf::MergeReport report = hf::merge_to_dir(model, options.adapter, options.out, [&] {
    stop_if_requested();
    if (pass.valid()) return;
    pass = std::async(std::launch::async, [&] {
      ops::stay_single_threaded();
      return probe_folder(model, options.adapter, device);
    });
  });
  const hf::ModelDir base = hf::ModelDir::open(model);
  hf::warn_of_missing_layers(adapter, base.config);
  const Probed want = pass.get();
  stop_if_requested();
  const Probed got = probe_folder(
      options.out, "", device, report.sees_as_before ? want.features : decltype(want.features)());
  const ProbeDifference difference = compare_logits(want.logits_kv, got.logits_kv);
  const io::DType rounded = coarsest(base.stored_dtype, report.dtypes);
  const RoundingBound bound = rounding_bound(rounded);
  write_report(options.out, difference, bound, rounded);
  print_line("merged " + std::to_string(report.tensors_merged) + " tensors (" +
             std::to_string(report.shards) + " files) into " + options.out +
             format_number(difference.max_abs, ": max abs difference of logits %.3g, ") +
             format_number(difference.mean_kl, "mean KL %.3g, ") +
             format_number(difference.top1_agreement, "top-1 agreement %.4f at ") +
             std::to_string(difference.positions) + " positions");
  if (report.unties) {
    print_line(
        "the base ties LM head and embedding, the adapter changes one without the other: "
        "the merged model stores both, with tie_word_embeddings: false in config.json");
  }
  if (within(difference, bound)) return;
  char found[160];
  std::snprintf(found, sizeof found, "logits up to %.3g apart (largest logit %.3g), mean KL %.3g",
                difference.max_abs, difference.largest_logit, difference.mean_kl);
  char expected[120];
  std::snprintf(expected, sizeof expected, "at most %.3g and %.3g",
                bound.relative_max_abs * difference.largest_logit, bound.mean_kl);
  refuse(ErrorKind::kNumeric,
         "the merged model differs from base and adapter by more than rounding",
         options.out + "/merge_report.json", found, expected,
         "do not use the merged model; a base stored in F32 rounds less");
}

}  // namespace

void add_merge(Command& app) {
  auto options = std::make_shared<MergeOptions>();
  Command command =
      app.subcommand("merge", "merge base and adapter into one model in HF layout, and check it");
  command.option("--adapter", options->adapter, "PEFT adapter directory, or a run directory")
      .required()
      .meaning(io::adapter_folder);
  command
      .option("--model", options->model,
              "base model directory (default: the one that the adapter records)")
      .meaning(io::model_folder);
  command.option("--out", options->out, "directory for the merged model: new, or an earlier merge")
      .required();
  command.run([options] { merge(*options); });
}

}  // namespace lft::cli
