// What generate, eval and score share: their common options, the defaults of template and image fit, and loading. No output format is
// decided here.
#pragma once
#include <CLI/App.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/llava/llava.h"
#include "src/cli/outputs.h"
#include "src/data/dataset.h"
#include "src/text/tokenizer.h"
#include "src/train/precision.h"

namespace lft::cli {

struct InferOptions {
  std::string model, adapter;
  std::string template_name, image_fit;  // empty: what the adapter or the model directory records, else llava-v1 and pad
  std::string dtype;                     // storage and compute: fp32, bf16, fp16; empty: fp32 on a CPU, on a GPU what a recipe's auto takes
  int64_t max_tokens = 2048;             // lowered to the model's positions
  ImageLimits image_limits;
};
/// Registers --model, --adapter, --template, --image-fit and --dtype.
void add_infer_options(CLI::App& command, InferOptions& options);

/// What --dtype ("" where it is not given) means on a device. kUsage for another name.
Precision infer_precision(const std::string& asked, const DeviceFacts& facts);

struct InferModel {
  Llava model{nullptr};
  std::unique_ptr<Tokenizer> tokenizer;
  EncodeOptions encode;
  at::Device device = at::kCPU;
  at::ScalarType dtype = at::kFloat;  // storage of the base and compute dtype of a forward pass
};
/// Base and adapter on the default device, in eval mode. Says on stderr, in one line, which template and image fit are used and why. Throws
/// kUsage for a value no option has, kInput for what is on disk (an adapter of another base too).
InferModel load_infer_model(const InferOptions& options);

/// Ends the command with exit code 130 (Ctrl-C) or 75 when a signal came; no output has taken its place then.
void stop_if_requested();

/// Lines that appear under `path` at once, when all are written; until then they lie in a temporary file beside it, removed if commit() is
/// never reached. Throws kUsage where `path` is one of the inputs or inside one, kResource for what the file system refuses.
class OutputLines {
 public:
  OutputLines(const std::string& path, const Inputs& inputs);
  ~OutputLines();
  OutputLines(const OutputLines&) = delete;
  void line(std::string_view text);
  void commit();

 private:
  void flush();
  [[noreturn]] void fail(const std::string& what) const;

  std::string path_, temporary_, buffer_;
  int fd_ = -1;
};

}  // namespace lft::cli
