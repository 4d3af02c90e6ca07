// Converts a row to a sample: encode_row() runs all steps, validate and preview single ones.
#pragma once
#include <string>
#include <vector>

#include "kernels/common/error.h"
#include "src/data/encode_options.h"
#include "src/data/rows/row_reader.h"
#include "src/data/store/sample.h"
#include "src/text/chat/chat_template.h"

namespace lft::data {

/// The location "file:line (id "x")", as in every error of a row.
std::string row_place(const Row& row);

constexpr char kFixImage[] =
    "fix the file, or the row's file name, or data.image_root; data.on_bad_sample: skip leaves "
    "such rows out";
constexpr char kLongPrompt[] = "the prompt is longer than the model's positions";
/// Rethrows the error with the row's location before the image's, and with the advice `next` if it
/// has none.
[[noreturn]] void throw_image_error(const Row& row, const Error& error, const std::string& next);

/// Row -> Sample: renders and tokenises once, takes labels from character spans, expands image
/// positions like the model's processor, and fits the pixels. Text after max_tokens is
/// truncated; kInput if that would cut an image, or if the numbers of images and <image> marks
/// differ.
Sample encode_row(const Row& row, const std::string& image_root, const text::Tokenizer& tokenizer,
                  const EncodeOptions& options);
/// A prompt to generate from: ids and pixels, no labels. Its last answer is empty; its images are
/// files with their own paths or embedded. kInput if it is longer than the model's positions.
Sample encode_prompt(const Row& prompt, const text::Tokenizer& tokenizer,
                     const EncodeOptions& options);

/// kInput unless the number of <image> marks in the questions equals that of the row's images, and
/// other texts have no marks.
void check_marks(const Row& row);

/// The plan of each image of a row, in order. Unless all images get the same shape, the headers of
/// the files are read; their errors name the row.
std::vector<family::ImagePlan> plan_images(const Row& row, const std::string& image_root,
                                           const EncodeOptions& options);
/// The same for `count` images of a model that has one shape for all of them.
std::vector<family::ImagePlan> fixed_plans(size_t count, const EncodeOptions& options);
/// The same for images that have been fitted before.
std::vector<family::ImagePlan> plans_of(const std::vector<PixelImage>& images,
                                        const EncodeOptions& options);

/// A row as text and as tokens. Nothing is truncated; a run of image positions is one token.
struct EncodedText {
  text::Rendered rendered;          // with the text of each image
  std::vector<text::Token> tokens;  // tokens of rendered.text
  std::vector<bool> supervised;     // whether each token is supervised
  bool special_read = false;        // same as in Sample
};
/// The row rendered by the chat template; with `generate` the text ends where the next answer
/// begins. An error of the template names the row.
text::Rendered render_row(const Row& row, const EncodeOptions& options, bool generate);
/// Tokenises a rendered row. kInput if a token has no embedding row or the number of image tokens
/// is not that of the images.
EncodedText encode_rendered(const Row& row, text::Rendered rendered,
                            const std::vector<family::ImagePlan>& images,
                            const text::Tokenizer& tokenizer, const EncodeOptions& options);
/// render_row() and encode_rendered(), with the row's answers.
EncodedText encode_text(const Row& row, const std::vector<family::ImagePlan>& images,
                        const text::Tokenizer& tokenizer, const EncodeOptions& options);

/// The prompt for the message with index `answer` in the row, or for the next message if that is
/// the number of messages. `sample` is that of the row. There are no labels.
Sample encode_question(const Row& row, size_t answer, const Sample& sample,
                       const text::Tokenizer& tokenizer, const EncodeOptions& options);

/// Ids and labels with every image token repeated for its positions; no pixels. The first label is
/// kIgnoreIndex, since no position predicts it.
Sample expand_images(const EncodedText& text, const Row& row,
                     const std::vector<family::ImagePlan>& images, const EncodeOptions& options);

/// Truncates a sample to max_tokens; kInput if that would cut an image.
void truncate_sample(Sample& sample, const Row& row, const std::vector<family::ImagePlan>& images,
                     const EncodeOptions& options);

}  // namespace lft::data
