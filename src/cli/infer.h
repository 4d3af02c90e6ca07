// Common parts of generate, eval, score and serve: options, defaults of template and image fit,
// loading.
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
#include "src/hf/adapter/adapter.h"
#include "src/hf/model_dir.h"
#include "src/infer/generate.h"
#include "src/io/file_handle.h"
#include "src/text/tokenizer.h"
#include "src/train/machine/precision.h"

namespace lft::cli {

struct InferOptions {
  std::string target;  // a run's folder, an adapter, a model or a recipe: see infer_target.h
  std::string model, adapter;
  /// Settings in `asked` have precedence, then those that the adapter or the model's directory
  /// records, then those of the recipe, then the model's defaults.
  family::InputSettings asked, of_recipe;
  /// Storage and compute dtype: fp32, bf16, fp16. Empty: fp32 on a CPU, on a GPU like
  /// precision.compute: auto.
  std::string dtype;
  int64_t max_tokens = 2048;  // lowered to the model's positions
  io::ImageLimits image_limits;
  bool count_unknown = true;  // count unused keys of rows, as data.unknown_keys: warn
  bool count_marks = true;    // and marks of other tools
  data::ColumnRules columns = {};
  bool skip_bad = false;  // data.on_bad_sample: skip, for at most `max_bad` rows
  int64_t max_bad = 0;
};
/// Registers the target, --model, --adapter, --template, --image-fit, --alpha, --min-pixels,
/// --max-pixels and --dtype. With `adapters` --adapter may be repeated, and its values are put
/// there as they are given.
void add_infer_options(Command& command, InferOptions& options,
                       std::vector<std::string>* adapters = nullptr);

/// Decoding settings of answers.
struct DecodeOptions {
  infer::GenerateOptions generate;
  std::vector<std::string> stop;
};
/// Registers --max-new-tokens, --temperature, --top-k, --top-p, --repetition-penalty, --stop and
/// --seed.
void add_decode_options(Command& command, DecodeOptions& options);

/// The dtype of --dtype ("" if it is not given) on a device. kUsage for an unknown name.
train::Precision infer_precision(const std::string& asked, const train::DeviceFacts& facts);

struct InferModel {
  family::Model model{nullptr};
  std::unique_ptr<text::Tokenizer> tokenizer;
  data::EncodeOptions encode;
  at::Device device = at::kCPU;
  at::ScalarType dtype = at::kFloat;  // storage of the base and compute dtype of a forward pass
};
/// Loads base and adapter (settle_target() has named them) on the default device, in evaluation
/// mode. Prints model, adapter and settings with their sources to stderr. kUsage for an invalid
/// option, kInput for invalid files (including an adapter of another base).
InferModel load_infer_model(const InferOptions& options);

// The parts of load_infer_model(), for several adapters of one base.
/// The base's folder, and an InferModel with device, dtype and tokenizer.
hf::ModelDir open_infer_base(const InferOptions& options, InferModel& out);
/// Opens an adapter and checks that it belongs to the base.
hf::AdapterDir open_infer_adapter(const std::string& path, const hf::ModelDir& base);
/// The options for encoding prompts, as the adapter (none: an empty path) and the model record
/// them.
data::EncodeOptions infer_encode(const InferOptions& options, const hf::ModelDir& base,
                                 const hf::AdapterDir& adapter, const text::Tokenizer& tokenizer);

/// A text file that is written to a temporary file next to `path` and renamed by commit(); without
/// commit() it is removed. A device, pipe or socket is written to instead. kUsage if `path` is one
/// of the inputs or inside one, kResource for errors of the file system.
class OutputLines {
 public:
  OutputLines(const std::string& path, const Inputs& inputs);
  ~OutputLines();
  OutputLines(const OutputLines&) = delete;
  void line(std::string_view text);
  void commit();

 private:
  void flush();

  std::string path_, temporary_, buffer_;  // without a temporary file: a stream, or it is renamed
  io::FileHandle file_;
};

}  // namespace lft::cli
