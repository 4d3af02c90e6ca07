#include <algorithm>

#include "src/base/errors.h"
#include "src/data/dataset.h"
#include "src/io/files.h"
#include "src/text/chat_template.h"
#include "src/text/labels.h"

namespace lft {
namespace {

constexpr int64_t kIgnore = -100;
const std::string kImageMark = "<image>";

std::string place(const Row& row) { return row.where + " (id " + quote_text(row.id, 80) + ")"; }

[[noreturn]] void fail(const Row& row, const std::string& what, const std::string& found, const std::string& expected,
                       const std::string& next = {}) {
  throw Error(ErrorKind::kInput, {.what = what, .where = place(row), .found = found, .expected = expected, .next = next});
}

int64_t count_marks(const std::string& text) {
  int64_t marks = 0;
  for (size_t at = text.find(kImageMark); at != std::string::npos; at = text.find(kImageMark, at + kImageMark.size())) ++marks;
  return marks;
}

/// As many <image> marks in the questions as images, and none in an answer.
void check_marks(const Row& row, int64_t images) {
  int64_t marks = 0;
  for (const Turn& turn : row.turns) {
    marks += count_marks(turn.question);
    if (count_marks(turn.answer) > 0) fail(row, "<image> in an answer", quote_text(turn.answer, 80), "images in questions only");
  }
  if (marks == images) return;
  const std::string next = marks == 0 ? "write \"<image>\\n\" into the question where the image belongs (LLaVA puts it first)"
                                      : "give one file name in \"image\" or \"images\" for each mark, in order";
  fail(row, "<image> marks and images differ in number", std::to_string(marks) + " marks, " + std::to_string(images) + " images",
       "as many marks as images", next);
}

/// Ids and labels with every image token repeated for its positions. The first label is always -100: nothing predicts it.
void tokenize(Sample& sample, const Row& row, const Rendered& rendered, int64_t images, const Tokenizer& tokenizer,
              const EncodeOptions& options) {
  const LlavaConfig& config = options.config;
  const std::vector<Token> tokens = tokenizer.encode(rendered.text);
  const std::vector<bool> mask = supervised_mask(tokens, rendered.supervised);
  int64_t image_tokens = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const Token& token = tokens[i];
    if (token.id < 0 || token.id >= config.text.vocab) {
      fail(row, "a token id beyond the model's embedding rows", std::to_string(token.id), "below " + std::to_string(config.text.vocab),
           "use the tokenizer that belongs to the model");
    }
    const bool is_image = token.id == config.image_token;
    const bool supervised = mask[i] && !is_image && i > 0;
    image_tokens += is_image;
    const int64_t copies = is_image ? config.image_positions() : 1;
    sample.input_ids.insert(sample.input_ids.end(), static_cast<size_t>(copies), token.id);
    sample.labels.insert(sample.labels.end(), static_cast<size_t>(copies), supervised ? token.id : kIgnore);
  }
  if (image_tokens != images) {
    fail(row, "the tokenizer does not give one image token for each <image>", std::to_string(image_tokens) + " image tokens",
         std::to_string(images));
  }
}

/// Drops what lies behind max_tokens; an image is whole or the row is an error.
void truncate(Sample& sample, const Row& row, const EncodeOptions& options) {
  const int64_t length = static_cast<int64_t>(sample.input_ids.size());
  if (length <= options.max_tokens) return;
  const auto last = std::find(sample.input_ids.rbegin(), sample.input_ids.rend(), options.config.image_token);
  const int64_t behind_images = sample.input_ids.rend() - last;
  if (behind_images > options.max_tokens) {
    fail(row, "the limit of tokens would cut an image",
         "the last image ends at position " + std::to_string(behind_images) + " (" + std::to_string(options.config.image_positions()) +
             " positions an image, from the vision tower)",
         "at most data.max_tokens = " + std::to_string(options.max_tokens),
         "raise data.max_tokens (the model has " + std::to_string(options.config.text.max_positions) +
             " positions) or shorten what stands before the image");
  }
  sample.input_ids.resize(static_cast<size_t>(options.max_tokens));
  sample.labels.resize(static_cast<size_t>(options.max_tokens));
}

/// Runs `load` and names the row in its error.
template <typename Load>
RgbImage load_named(const Row& row, const Load& load) {
  try {
    return load();
  } catch (const Error& error) {
    ErrorInfo info = error.info();
    info.where = place(row) + (info.where.empty() ? "" : ": " + info.where);
    throw Error(error.kind(), info);
  }
}

}  // namespace

int64_t Sample::supervised() const {
  return std::count_if(labels.begin(), labels.end(), [](int64_t label) { return label != kIgnore; });
}

Sample encode_row(const Row& row, const std::string& image_root, const Tokenizer& tokenizer, const EncodeOptions& options) {
  const int64_t images = static_cast<int64_t>(row.images.size());
  check_marks(row, images);
  Sample sample;
  sample.id = row.id;
  tokenize(sample, row, render(options.template_name, row.turns, options.eos), images, tokenizer, options);
  truncate(sample, row, options);
  for (const std::string& name : row.images) {
    sample.images.push_back(fit_image(load_named(row, [&] { return load_image(image_root.empty() ? "." : image_root, name); }),
                                      options.config.vision.image_size, options.image_fit, options.image_mean));
  }
  return sample;
}

Sample encode_prompt(const std::vector<Turn>& turns, const std::vector<std::string>& image_files, const Tokenizer& tokenizer,
                     const EncodeOptions& options) {
  const Row row{.id = "prompt", .where = "prompt", .turns = turns, .images = image_files};
  const int64_t images = static_cast<int64_t>(image_files.size());
  check_marks(row, images);
  Sample sample;
  sample.id = row.id;
  tokenize(sample, row, render(options.template_name, turns, options.eos, /*generate=*/true), images, tokenizer, options);
  sample.labels.clear();
  const int64_t length = static_cast<int64_t>(sample.input_ids.size()), positions = options.config.text.max_positions;
  if (length > positions) fail(row, "the prompt is longer than the model's positions", std::to_string(length), std::to_string(positions));
  for (const std::string& file : image_files) {
    const RgbImage image = load_named(row, [&] { return decode_image(read_file(file, ImageLimits{}.max_bytes), file); });
    sample.images.push_back(fit_image(image, options.config.vision.image_size, options.image_fit, options.image_mean));
  }
  return sample;
}

}  // namespace lft
