#include "src/cli/infer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "kernels/common/error.h"
#include "models/lora/inject.h"
#include "src/base/errors.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/hf/adapter/adapter.h"
#include "src/hf/model_dir.h"
#include "src/io/files.h"
#include "src/io/run_folder.h"
#include "src/train/machine/device.h"
#include "src/train/machine/precision.h"

namespace lft::cli {
namespace {

struct Choice {
  std::string value, why;
};
/// What was asked for, else what the adapter records, else what the model does.
Choice choose(const std::string& given, const std::string& by_adapter, const std::string& by_model,
              const std::string& fallback) {
  const std::string& recorded = by_adapter.empty() ? by_model : by_adapter;
  const std::string by = by_adapter.empty() ? "the model" : "the adapter";
  if (!given.empty())
    return {given, recorded.empty() || recorded == given
                       ? "as asked"
                       : "as asked; " + by + " was trained with " + recorded};
  if (!recorded.empty()) return {recorded, "from " + by};
  return {fallback, "the default"};
}

void check_names(const InferOptions& options) {
  if (!options.template_name.empty() && !text::is_template(options.template_name)) {
    refuse(ErrorKind::kUsage, "unknown template", "--template", options.template_name,
           join(text::template_names()));
  }
}

}  // namespace

Option add_infer_options(Command& command, InferOptions& options) {
  const Option model = command.option("--model", options.model, "model directory in HF layout")
                           .meaning(io::model_folder);
  command.option("--adapter", options.adapter, "PEFT adapter directory, or a run's folder")
      .meaning(io::adapter_folder);
  command.option("--template", options.template_name,
                 "prompt template (default: the adapter's or the model's, else its family's)");
  command.option("--image-fit", options.image_fit,
                 "pad, crop or native (default: the adapter's or the model's, else its family's)");
  command.option("--dtype", options.dtype,
                 "storage and compute: fp32, bf16 or fp16 (default: fp32 on a CPU; on a GPU bf16 "
                 "or fp16 where it is fast)");
  return model;
}

void add_decode_options(Command& command, DecodeOptions& options) {
  command.option("--max-new-tokens", options.generate.max_new_tokens, "longest answer")
      .show_default()
      .range(1, 1 << 20);
  command.option("--temperature", options.generate.temperature, "0 takes the likeliest token")
      .show_default()
      .real_range(0.0, 100.0);
  command
      .option("--top-k", options.generate.top_k,
              "draw from so many of the likeliest tokens; 0: all")
      .show_default()
      .range(0, 1 << 24);
  command
      .option("--top-p", options.generate.top_p,
              "draw from the likeliest tokens that hold this much")
      .show_default()
      .real_range(1e-6, 1.0);
  command
      .option("--repetition-penalty", options.generate.repetition_penalty,
              "above 1: tokens of the prompt and of the answer so far become less likely")
      .show_default()
      .real_range(1e-3, 1e3);
  command.option("--stop", options.stop, "a text that ends an answer; once for every text")
      .one_each();
  command.option("--seed", options.generate.seed, "of the draws").show_default();
}

train::Precision infer_precision(const std::string& asked, const train::DeviceFacts& facts) {
  if (asked.empty()) return train::choose_precision(facts.gpu ? "auto" : "fp32", facts, "--dtype");
  if (asked != "fp32" && asked != "bf16" && asked != "fp16") {  // auto is for recipes
    refuse(ErrorKind::kUsage, "unknown dtype", "--dtype", quote_text(asked), "fp32, bf16 or fp16");
  }
  return train::choose_precision(asked, facts, "--dtype");
}

InferModel load_infer_model(const InferOptions& options) {
  check_names(options);
  InferModel out;
  out.device = train::default_device();
  if (options.model.empty()) {
    refuse(ErrorKind::kUsage, "no model", {}, {}, "--model DIR",
           "name the base model; --adapter DIR goes with it");
  }
  const train::Precision precision =
      infer_precision(options.dtype, train::device_facts(out.device));
  if (!precision.notice.empty()) notice(precision.notice);
  if (options.dtype.empty() && precision.compute != at::kFloat)
    notice("dtype: " + train::compute_name(precision.compute) + " (the default here)");
  out.dtype = precision.compute;
  hf::ModelDir base = hf::ModelDir::open(options.model);
  hf::AdapterDir adapter;
  if (!options.adapter.empty()) {
    adapter = hf::AdapterDir::open(options.adapter);
    hf::check_adapter_base(adapter, base);
    if (hf::untie(adapter, base)) {
      notice(
          "the base ties LM head and embedding, the adapter changes one without the other: they "
          "are two tensors here, as in PEFT");
    }
  }
  const hf::AdapterNotes notes = hf::read_model_notes(base.path);
  const family::FamilyDefaults own = base.config.family->defaults(base.config);
  const Choice named = choose(options.template_name, adapter.notes.template_name,
                              notes.template_name, own.template_name);
  const Choice fit =
      choose(options.image_fit, adapter.notes.image_fit, notes.image_fit, own.image_fit);
  notice("template: " + named.value + " (" + named.why + "), image fit: " + fit.value + " (" +
         fit.why + ")");

  out.tokenizer = text::Tokenizer::load(options.model);
  std::string lowered;
  out.encode = data::encode_options(options.model, base.config, *out.tokenizer,
                                    {.template_name = named.value,
                                     .image_fit = fit.value,
                                     .max_tokens = options.max_tokens,
                                     .min_pixels = options.min_pixels,
                                     .max_pixels = options.max_pixels},
                                    &lowered);
  if (!lowered.empty()) notice(lowered);
  hf::check_adapter_tokenizer(adapter, out.encode.tokenizer_parts);
  hf::check_model_tokenizer(base.path, out.encode.tokenizer_parts);
  out.encode.image_limits = options.image_limits;
  out.encode.count_unknown = options.count_unknown;
  out.encode.special_tokens = options.special_tokens;
  out.model = hf::load_model(base, out.dtype, out.device);
  if (!options.adapter.empty()) hf::load_adapter(out.model, adapter);
  lora::keep_shadows(*out.model, out.dtype);
  out.model->eval();
  return out;
}

OutputLines::OutputLines(const std::string& path, const Inputs& inputs)
    : path_(io::absolute_path(path)) {
  refuse_input("--out", path, inputs);
  if (io::is_directory(path_)) {
    refuse(ErrorKind::kUsage, "the output is a directory", "--out " + path, {}, "a file",
           "name a file in it");
  }
  temporary_ = path_ + ".tmp-" + std::to_string(getpid());
  fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) fail("cannot create the output file");
}

OutputLines::~OutputLines() {
  if (fd_ < 0) return;
  close(fd_);
  unlink(temporary_.c_str());
}

void OutputLines::line(std::string_view text) {
  buffer_.append(text);
  buffer_ += '\n';
  if (buffer_.size() >= 1u << 16) flush();
}

void OutputLines::flush() {
  for (size_t at = 0; at < buffer_.size();) {
    const ssize_t wrote = write(fd_, buffer_.data() + at, buffer_.size() - at);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) fail("cannot write the output file");
    at += static_cast<size_t>(wrote);
  }
  buffer_.clear();
}

void OutputLines::commit() {
  flush();
  if (fsync(fd_) != 0) fail("cannot write the output file");
  if (rename(temporary_.c_str(), path_.c_str()) != 0)
    fail("cannot put the output file in its place");
  close(fd_);
  fd_ = -1;
}

void OutputLines::fail(const std::string& what) const {
  const int code = errno;
  refuse(ErrorKind::kResource, what, path_, std::strerror(code), {},
         code == ENOENT ? "create the folder first"
                        : "name a file on a disk with room, where this user may write");
}

}  // namespace lft::cli
