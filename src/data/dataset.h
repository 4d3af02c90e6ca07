// A dataset: rows of data files (LLaVA, ShareGPT, OpenAI messages) or a prepared directory, read
// sample by sample by index.
#pragma once
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "models/family/family.h"
#include "models/family/input_settings.h"
#include "src/data/reading_budget.h"
#include "src/data/rows/row.h"
#include "src/data/store/sample.h"
#include "src/io/image.h"
#include "src/io/json.h"
#include "src/text/chat/chat_template.h"
#include "src/text/tokenizer.h"

namespace lft::data {

/// What a recipe says of how rows become samples.
struct EncodeRules {
  family::InputSettings settings = {};
  int64_t max_tokens = 2048;
};

/// What a special token in the data's own words is: a mistake, the words that spell it, or the
/// token, as HF tokenizers take it.
enum class SpecialTokensInText { kError, kText, kSpecial };

/// How rows become samples. All numbers come from the model, never from processor defaults.
struct EncodeOptions {
  family::ModelConfig config;
  std::shared_ptr<const text::ChatTemplate> chat;
  std::string image_fit = "pad";
  int64_t max_tokens = 2048;
  std::shared_ptr<const family::ImageProcessor> images;  // of the model and of image_fit
  std::string eos = "</s>";
  text::TokenizerParts tokenizer_parts;
  std::string tokenizer_fingerprint;  // of these parts; prepared data of another
                                      // tokenizer is refused
  bool skip_bad = false;  // on_bad_sample: skip. A malformed row is then an error of get(), not of
                          // open_dataset()
  int64_t max_bad = std::numeric_limits<int64_t>::max();  // how many samples skip_bad may leave out
  SpecialTokensInText special_tokens = SpecialTokensInText::kSpecial;
  bool count_unknown = false;   // unknown_keys: warn. Else a key that is not used makes a row bad
  bool open_questions = false;  // a row may end with a question, to be asked and not to be learnt
  io::ImageLimits image_limits;
  std::shared_ptr<ReadingBudget> reading = {};  // of who decodes images; null: without limit
};

/// Reads mean/std (preprocessor_config.json or processor_config.json), eos
/// (tokenizer_config.json) and the chat template (encode.h); lowers max_tokens to the model's
/// positions and then sets *notice.
EncodeOptions encode_options(const std::string& model_dir, const family::ModelConfig& config,
                             const text::Tokenizer& tokenizer, const EncodeRules& rules,
                             std::string* notice);

/// Row -> Sample: render once, tokenise once, labels from character spans, image positions expanded
/// as the model's processor says, pixels fitted. Truncates text after max_tokens, never an
/// image position (kInput then). kInput where images and <image> marks differ in number.
Sample encode_row(const Row& row, const std::string& image_root, const text::Tokenizer& tokenizer,
                  const EncodeOptions& options);
/// What encode_row's sample will measure; images are opened, not decoded.
SampleLength row_length(const Row& row, const std::string& image_root,
                        const text::Tokenizer& tokenizer, const EncodeOptions& options);
/// A prompt to generate from: ids and pixels, no labels. Its last answer is empty, its images are
/// files by their own paths or come with it. kInput where it is longer than the model's positions.
Sample encode_prompt(const Row& prompt, const text::Tokenizer& tokenizer,
                     const EncodeOptions& options);
/// What the model sees of an image.
PixelImage fit_image(const io::RgbImage& image, const family::ImageProcessor& processor);

/// What the system says of an image file; bytes -1: it is not there.
struct ImageFile {
  int64_t bytes = -1, seconds = 0, nanoseconds = 0;  // size and time of the last change
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  virtual Sample get(int64_t index) const = 0;  // thread-safe
  /// Of get(index), thread-safe too; throws what get() would, except for pixels that cannot be
  /// decoded: a file of rows reads only the headers of its images, a prepared directory none.
  virtual SampleLength length(int64_t index) const;
  /// Measures all rows, where that takes more than looking up: length() is fast from then on.
  virtual void measure(int64_t /*workers*/) const {}
  virtual std::string id(int64_t index) const = 0;
  /// Image file paths of a sample, for incidents and reports (empty for prepared data).
  virtual std::vector<std::string> image_paths(int64_t index) const = 0;
  virtual Row row(int64_t index) const = 0;  // prepared data keeps the turns too
  virtual std::string hash() const = 0;      // sha256 of what decides the samples (rows or shards)

  // What is known of the rows without a look at each.
  virtual int64_t images_of(int64_t index) const;  // how many images a row shows
  virtual bool any_image() const;                  // whether a row shows one
  /// The same for rows with the same turns, system text and images; 0 where it cannot be read.
  virtual uint64_t said(int64_t index) const;
  /// Images by number, each once; none of prepared data. image_files(): as they were when it was
  /// first asked, and not there where they come with their rows.
  virtual std::vector<int32_t> image_numbers(int64_t /*index*/) const { return {}; }
  virtual int64_t image_names() const { return 0; }
  virtual std::string image_name(int64_t /*number*/) const { return {}; }
  virtual std::string image_root(int64_t /*number*/) const { return {}; }  // where the name begins
  virtual const std::vector<ImageFile>& image_files() const;
  /// The bytes of an image that a row shows, as its file holds them; empty of prepared data and
  /// where it cannot be read.
  virtual std::string image_bytes(int64_t /*index*/, size_t /*image*/) const { return {}; }

  /// Which of several sources that were put together a row is of.
  virtual int32_t source(int64_t /*index*/) const { return 0; }
  /// Writes what a later start would have to find out again to files of this stem (IndexUse), where
  /// it was not found in one. kResource where it cannot be written.
  virtual void keep_index(const std::string& /*stem*/) const {}
};
/// The index of a data file, which spares a start reading all rows: <stem>.rows, and <stem>.lengths
/// for what train.worst_first and data.group_by_length ask.
inline constexpr char kIndexBeside[] = ".lft";  // a data file's path with it is a stem, too
struct IndexUse {
  std::vector<std::string> kept = {};  // stems that are looked at before that one, in this order
  bool lengths = false;                // they will be asked for: measured as rows are read
};

/// A directory written by `lft prepare`, a file of rows, or a folder of such files
/// (src/data/sources/data_files.h). `tokenizer` must outlive the dataset.
std::unique_ptr<Dataset> open_dataset(const std::string& path, const std::string& image_root,
                                      const text::Tokenizer& tokenizer,
                                      const EncodeOptions& options, const IndexUse& use = {});

/// Rows of the first, then of the second, ... With `as_sources` a row's source() is the number of
/// its part, and a sample's; else they are parts of one.
std::unique_ptr<Dataset> join_datasets(std::vector<std::unique_ptr<Dataset>> parts,
                                       bool as_sources);
/// Where the index of part `i` is kept, when that of the whole is kept at `stem`.
std::string part_stem(const std::string& stem, size_t i);

/// Everything that decides a sample beside its row and images.
io::Json sample_rules(const EncodeOptions& options);

/// Writes tokenised, decoded samples into safetensors shards with an index. kInput for the first
/// bad sample; with options.skip_bad it keeps its place and its reason, so that order and skips are
/// those of the rows it was made from. `poll` runs every few samples; what it throws leaves no
/// output behind.
constexpr int64_t kPreparedShardBytes = 512ll << 20;
void prepare_dataset(const Dataset& dataset, const EncodeOptions& options, const std::string& out,
                     int64_t shard_bytes = kPreparedShardBytes,
                     const std::function<void()>& poll = nullptr);

}  // namespace lft::data
