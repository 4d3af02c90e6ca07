#include "src/hf/adapter/adapter_merge.h"

#include <ATen/core/grad_mode.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "kernels/common/error.h"
#include "src/base/hash.h"
#include "src/hf/adapter/adapter_notes.h"
#include "src/hf/adapter/adapter_tie.h"
#include "src/hf/adapter/merger.h"
#include "src/hf/adapter/model_files.h"
#include "src/hf/model_dir_fingerprint.h"
#include "src/hf/weights.h"
#include "src/io/files.h"
#include "src/io/json.h"

namespace lft::hf {
namespace {

constexpr const char* kReport = "merge_report.json";
constexpr const char* kTie = "tie_word_embeddings";

void check_out(const std::string& out, const std::string& input) {
  if (io::is_inside(out, input) || io::is_inside(input, out)) {
    refuse(ErrorKind::kUsage, "the output would touch an input", out,
           "equal to, inside or above " + input, "a folder apart from both inputs");
  }
}

void check_unused(const std::string& out) {
  if (!io::path_exists(out)) return;
  if (!io::is_directory(out))
    refuse(ErrorKind::kUsage, "the output exists", out, "a file", "a new folder");
  if (std::filesystem::is_empty(out) || io::path_exists(out + "/" + kReport)) return;
  refuse(ErrorKind::kUsage, "the output exists", out,
         "a folder that is not empty and is not a merge",
         "a new folder, or one that lft merge wrote");
}

/// An earlier merge in `out` may be replaced if it is of the same base; another model is kept.
void check_same_base(const std::string& out, const ModelDir& base) {
  if (!io::path_exists(out + "/" + kReport)) return;
  const AdapterNotes notes = read_model_notes(out);
  const io::Json report = io::read_json_file(out + "/" + kReport);
  const std::string path =
      report.is_object() && report.contains("base") && report["base"].is_string()
          ? report["base"].get<std::string>()
          : "";
  const bool same = notes.base_fingerprint.empty()
                        ? path == base.path
                        : notes.base_fingerprint == base_fingerprint(base);
  if (same) return;
  refuse(ErrorKind::kUsage, "the output is a merge of another base", out,
         "a merge of " + (path.empty() ? "an unknown base" : path),
         "a new folder, or an earlier merge of " + base.path,
         "name another --out, or remove " + out + " if it is no longer needed");
}

/// A merge records its adapter, since adding the same adapter twice would double it.
void check_not_merged(const std::string& model, const std::string& adapter_hash) {
  const std::string file = model + "/" + kReport;
  if (!io::path_exists(file)) return;
  const io::Json report = io::read_json_file(file);
  if (report.is_object() && report.value("adapter_sha256", io::Json()) == adapter_hash) {
    refuse(ErrorKind::kUsage, "this adapter is merged into this model already", file, "",
           "the base model that the adapter was trained on");
  }
}

AdapterNotes merged_notes(const AdapterDir& adapter, const ModelDir& base) {
  const AdapterNotes recorded = training_notes(adapter, base);
  return {.base_path = base.path,
          .base_fingerprint = base_fingerprint(base),
          .input = recorded.input,
          .chat_template = recorded.chat_template,
          .tokenizer = recorded.tokenizer};
}

/// Sets both keys by which transformers may tie embedding and LM head to false.
std::string untied_config(const std::string& model) {
  io::Json config = io::read_json_file(model + "/config.json");
  config[kTie] = false;
  if (config.contains("text_config") && config["text_config"].is_object())
    config["text_config"][kTie] = false;
  return pretty_json(config);
}

}  // namespace

MergeReport merge_to_dir(const std::string& model_path, const std::string& adapter_path,
                         const std::string& out, const std::function<void()>& poll,
                         const MergePart& part) {
  const at::NoGradGuard no_grad;
  check_out(out, model_path);
  check_out(out, adapter_path);
  check_unused(out);
  const AdapterDir adapter = AdapterDir::open(adapter_path);
  const std::string adapter_hash = sha256_file(adapter.weights());
  check_not_merged(model_path, adapter_hash);
  ModelDir base = ModelDir::open(model_path);
  check_adapter_base(adapter, base);
  check_same_base(out, base);
  const AdapterNotes notes = merged_notes(adapter, base);
  MergeReport report;
  report.unties = untie(adapter, base);
  const Merger merger(base, adapter, part);
  report.shards = static_cast<int64_t>(base.files.size());
  io::write_dir_atomic(out, [&](const std::string& fresh) {
    for (size_t i = 0; i < base.files.size(); ++i) merger.write(i, fresh, poll, report);
    io::write_file_atomic(fresh + "/config.json", report.unties
                                                      ? untied_config(base.path)
                                                      : io::read_file(base.path + "/config.json"));
    if (!io::path_exists(base.path + "/model.safetensors")) merger.write_index(fresh);
    write_model_files(base.path, fresh, base.config, notes);
    const io::Json record = {{"base", base.path},
                             {"adapter", adapter.path},
                             {"adapter_sha256", adapter_hash},
                             {"tensors_merged", report.tensors_merged},
                             {"shards", report.shards}};
    io::write_file_atomic(fresh + "/" + kReport, pretty_json(record));
  });
  return report;
}

}  // namespace lft::hf
