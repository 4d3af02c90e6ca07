#include <memory>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/cli/adapter_base.h"
#include "src/cli/commands.h"
#include "src/hf/adapter/missing_layers.h"
#include "src/hf/exports/exports.h"
#include "src/io/run_folder.h"

namespace lft::cli {
namespace {

struct ExportOptions {
  std::string adapter, target, model, out, dialect, dtype;
  bool check = false;
};

hf::Dialect dialect_of(const std::string& name, hf::Target target) {
  if (name.empty()) return hf::Dialect::kEvery;
  if (target != hf::Target::kPeft)
    refuse(ErrorKind::kUsage, "only an export for PEFT has a choice of names", "--dialect", name,
           "no --dialect, or --target peft");
  if (name == "d1") return hf::Dialect::kD1;
  if (name == "d2") return hf::Dialect::kD2;
  if (name == "d3") return hf::Dialect::kD3;
  refuse(ErrorKind::kUsage, "unknown dialect", "--dialect", name,
         "d1 (transformers up to 4.51), d2 (from 4.52) or d3 (from 5.6)");
}

std::optional<io::DType> dtype_of(const std::string& name, hf::Target target) {
  if (name.empty()) return std::nullopt;
  if (target != hf::Target::kGguf)
    refuse(ErrorKind::kUsage, "only GGUF files have matrices of another type than the base",
           "--dtype", name, "no --dtype, or --target gguf");
  if (name == "fp32") return io::DType::kF32;
  if (name == "fp16") return io::DType::kF16;
  if (name == "bf16") return io::DType::kBF16;
  refuse(ErrorKind::kUsage, "unknown dtype", "--dtype", quote_text(name), "fp32, bf16 or fp16");
}

/// Prints one line for each finding; kInput if there is one.
void check_adapter(hf::Target target, const hf::AdapterDir& dir, const std::string& model) {
  const hf::ModelDir base = hf::ModelDir::open(model);
  hf::check_adapter_base(dir, base);
  hf::warn_of_missing_layers(dir, base.config);
  const std::vector<hf::Finding> found = hf::findings(target, dir, base.config);
  std::vector<std::string> lines;
  for (const hf::Finding& each : found)
    lines.push_back(each.what + " " + each.does +
                    (each.remedy.empty() ? "" : " (" + each.remedy + ")"));
  if (found.empty()) return print_line(hf::client_of(target) + " reads the adapter as it is");
  print_lines(lines);
  refuse(ErrorKind::kInput, hf::client_of(target) + " does not take the adapter as it is", dir.path,
         join(lines, "\n"), "an adapter that it reads as it is",
         "lft export ADAPTER --target " + hf::target_name(target) + " --out DIR, where that helps");
}

void run_export(const ExportOptions& options) {
  const hf::Target target = hf::target_of(options.target);
  const hf::Dialect dialect = dialect_of(options.dialect, target);
  const std::optional<io::DType> dtype = dtype_of(options.dtype, target);
  const hf::AdapterDir dir = hf::AdapterDir::open(options.adapter);
  const std::string model = base_of(dir, options.model);
  if (options.check) return check_adapter(target, dir, model);
  if (options.out.empty())
    refuse(ErrorKind::kUsage, "no place for the export", {}, {}, "--out DIR",
           "or --check, which writes nothing");
  print_lines(hf::export_adapter({.target = target,
                                  .adapter = dir,
                                  .model = model,
                                  .out = options.out,
                                  .dialect = dialect,
                                  .dtype = dtype},
                                 stop_if_requested));
}

}  // namespace

void add_export(Command& app) {
  auto options = std::make_shared<ExportOptions>();
  Command command = app.subcommand(
      "export", "convert an adapter for PEFT, vLLM, SGLang or llama.cpp, and check the result");
  command.option("ADAPTER", options->adapter, "PEFT adapter directory, or a run directory")
      .required()
      .meaning(io::adapter_folder);
  command.option("--target", options->target, "peft, vllm, sglang or gguf").required();
  command
      .option("--model", options->model,
              "base model directory (default: the one that the adapter records)")
      .meaning(io::model_folder);
  command.option("--out", options->out, "new directory for the result");
  command.option("--dialect", options->dialect,
                 "for peft: module names of a version of transformers: d1 (up to 4.51), d2 (from "
                 "4.52), d3 (from 5.6); default: names that PEFT reads from 4.52 on");
  command.option("--dtype", options->dtype,
                 "dtype of the matrices in GGUF files: fp32, fp16 or bf16; default: the base's, "
                 "but fp16 for bf16, with which llama.cpp is less exact");
  command.flag("--check", options->check,
               "write nothing; exit with 3 and a list if the target ignores or refuses something");
  command.run([options] { run_export(*options); });
}

}  // namespace lft::cli
