#include "src/cli/infer.h"

#include <fcntl.h>
#include <unistd.h>

#include <CLI/Error.hpp>
#include <CLI/Option.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "kernels/common/error.h"
#include "src/base/log.h"
#include "src/base/signals.h"
#include "src/base/text.h"
#include "src/hf/adapter.h"
#include "src/hf/model_dir.h"
#include "src/io/files.h"
#include "src/train/device.h"
#include "src/train/precision.h"

namespace lft::cli {
namespace {

struct Choice {
  std::string value, why;
};
Choice choose(const std::string& given, const std::string& recorded, const char* fallback) {
  if (!given.empty())
    return {given, recorded.empty() || recorded == given ? "as asked" : "as asked; the adapter was trained with " + recorded};
  if (!recorded.empty()) return {recorded, "from the adapter"};
  return {fallback, "the default"};
}

void check_names(const InferOptions& options) {
  if (!options.template_name.empty() && !is_template(options.template_name)) {
    throw Error(ErrorKind::kUsage, {.what = "unknown template",
                                    .where = "--template",
                                    .found = options.template_name,
                                    .expected = join(template_names()),
                                    .next = {}});
  }
  if (!options.image_fit.empty() && options.image_fit != "pad" && options.image_fit != "crop") {
    throw Error(ErrorKind::kUsage,
                {.what = "unknown image fit", .where = "--image-fit", .found = options.image_fit, .expected = "pad or crop", .next = {}});
  }
}

}  // namespace

void add_infer_options(CLI::App& command, InferOptions& options) {
  command.add_option("--model", options.model, "model directory in HF layout");
  command.add_option("--adapter", options.adapter, "PEFT adapter directory");
  command.add_option("--template", options.template_name, "prompt template (default: the adapter's, else llava-v1)");
  command.add_option("--image-fit", options.image_fit, "pad or crop (default: the adapter's, else pad)");
  command.add_option("--dtype", options.dtype, "storage and compute: fp32, bf16 or fp16")->capture_default_str();
}

InferModel load_infer_model(const InferOptions& options) {
  check_names(options);
  InferModel out;
  compute_type(options.dtype);  // auto is for recipes
  out.device = default_device();
  if (options.model.empty()) {
    throw Error(ErrorKind::kUsage, {.what = "no model", .where = {}, .found = {}, .expected = "--model DIR", .next = {}});
  }
  const Precision precision = choose_precision(options.dtype, device_facts(out.device), "--dtype");
  if (!precision.notice.empty()) notice(precision.notice);
  out.dtype = precision.compute;
  const ModelDir base = ModelDir::open(options.model);
  AdapterDir adapter;
  if (!options.adapter.empty()) {
    adapter = AdapterDir::open(options.adapter);
    check_adapter_base(adapter, base);
  }
  const Choice named = choose(options.template_name, adapter.notes.template_name, "llava-v1");
  const Choice fit = choose(options.image_fit, adapter.notes.image_fit, "pad");
  notice("template: " + named.value + " (" + named.why + "), image fit: " + fit.value + " (" + fit.why + ")");

  out.tokenizer = Tokenizer::load(options.model);
  std::string lowered;
  out.encode = encode_options(options.model, base.config, *out.tokenizer, named.value, fit.value, options.max_tokens, &lowered);
  if (!lowered.empty()) notice(lowered);
  out.model = load_llava(base, out.dtype, out.device);
  if (!options.adapter.empty()) load_adapter(out.model, adapter);
  out.model->eval();
  return out;
}

void stop_if_requested() {
  if (const int signal = requested_signal(); signal != 0) throw CLI::RuntimeError(stop_exit_code(signal));
}

OutputLines::OutputLines(const std::string& path, const std::vector<std::string>& inputs) : path_(absolute_path(path)) {
  for (const std::string& input : inputs) {
    if (input.empty() || !is_inside(path_, input)) continue;
    throw Error(ErrorKind::kUsage, {.what = "the output would change an input",
                                    .where = "--out " + path,
                                    .found = "inside " + input,
                                    .expected = "a path outside the model, the adapter and the data",
                                    .next = {}});
  }
  if (is_directory(path_)) {
    throw Error(ErrorKind::kUsage,
                {.what = "the output is a directory", .where = "--out " + path, .found = {}, .expected = "a file", .next = {}});
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
  if (rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot put the output file in its place");
  close(fd_);
  fd_ = -1;
}

void OutputLines::fail(const std::string& what) const {
  const int code = errno;
  throw Error(ErrorKind::kResource, {.what = what,
                                     .where = path_,
                                     .found = std::strerror(code),
                                     .expected = {},
                                     .next = code == ENOENT ? "create the folder first" : ""});
}

}  // namespace lft::cli
