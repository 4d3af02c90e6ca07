// What generate, eval and score share: their common options, the defaults of template and image
// fit, and loading. No output format is decided here.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/family/family.h"
#include "models/family/input_settings.h"
#include "src/cli/command_line.h"
#include "src/cli/outputs.h"
#include "src/data/dataset.h"
#include "src/data/encode_options.h"
#include "src/infer/generate.h"
#include "src/text/tokenizer.h"
#include "src/train/machine/precision.h"

namespace lft::cli {

struct InferOptions {
  std::string model, adapter;
  /// `asked` is used in any case. What it does not set is what the adapter or else the model's
  /// folder records; what they do not record is the recipe's, else the model's own.
  family::InputSettings asked, of_recipe;
  /// Storage and compute: fp32, bf16, fp16. Empty: fp32 on a CPU, on a GPU what a recipe's auto
  /// takes.
  std::string dtype;
  int64_t max_tokens = 2048;  // lowered to the model's positions
  io::ImageLimits image_limits;
  bool count_unknown = true;  // keys of rows that are not used; a recipe says by data.unknown_keys
};
/// Registers --model, --adapter, --template, --image-fit, --alpha, --min-pixels, --max-pixels and
/// --dtype; returns --model, for a command that requires it.
Option add_infer_options(Command& command, InferOptions& options);

/// How answers are decoded.
struct DecodeOptions {
  infer::GenerateOptions generate;
  std::vector<std::string> stop;
};
/// Registers --max-new-tokens, --temperature, --top-k, --top-p, --repetition-penalty, --stop and
/// --seed.
void add_decode_options(Command& command, DecodeOptions& options);

/// What --dtype ("" where it is not given) means on a device. kUsage for another name.
train::Precision infer_precision(const std::string& asked, const train::DeviceFacts& facts);

struct InferModel {
  family::Model model{nullptr};
  std::unique_ptr<text::Tokenizer> tokenizer;
  data::EncodeOptions encode;
  at::Device device = at::kCPU;
  at::ScalarType dtype = at::kFloat;  // storage of the base and compute dtype of a forward pass
};
/// Base and adapter on the default device, in eval mode. Says on stderr which model and adapter are
/// used, and with which settings and why. Throws kUsage for a value no option has, kInput for
/// what is on disk (an adapter of another base too).
InferModel load_infer_model(const InferOptions& options);

/// Lines that appear under `path` at once, when all are written; until then they lie in a temporary
/// file beside it, removed if commit() is never reached. Throws kUsage where `path` is one of the
/// inputs or inside one, kResource for what the file system refuses.
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
