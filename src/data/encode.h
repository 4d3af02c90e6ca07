// A row's way to a sample, part by part: encode_row runs them all, and who looks closer (validate,
// preview) runs one.
#pragma once
#include <string>
#include <vector>

#include "kernels/common/error.h"
#include "src/data/dataset.h"
#include "src/text/chat_template.h"

namespace lft::data {

/// "file:line (id "x")", as every error of a row names it.
std::string row_place(const Row& row);

constexpr char kMendImage[] =
    "mend the file, or the row's file name, or data.image_root; data.on_bad_sample: skip leaves "
    "such rows out";
constexpr char kMendRow[] = "mend the row; data.on_bad_sample: skip leaves such rows out";
/// Again, with the row's place before the image's, and with `next` where the error has no advice of
/// its own.
[[noreturn]] void throw_image_error(const Row& row, const Error& error, const std::string& next);

/// As many <image> marks in the questions as images, and none elsewhere; else kInput.
void check_marks(const Row& row);
/// kInput where the row has a system text and the template no place for it.
void check_system(const Row& row, const EncodeOptions& options);

/// A row as text and as tokens: nothing is cut, an image is one token.
struct EncodedText {
  text::Rendered rendered;
  std::vector<text::Token> tokens;  // of rendered.text
  std::vector<bool> supervised;     // by token
};
/// kInput where a token has no embedding row or the image tokens are not one for each image of the
/// row.
EncodedText encode_text(const Row& row, const text::Tokenizer& tokenizer,
                        const EncodeOptions& options);

/// Ids and labels with every image token repeated for its positions; no pixels. The first label is
/// always -100: nothing predicts it.
Sample expand_images(const EncodedText& text, const Row& row, const EncodeOptions& options);

/// Drops what lies after max_tokens; kInput where that would cut an image.
void truncate_sample(Sample& sample, const Row& row, const EncodeOptions& options);

/// The square of an image file, decoded with no more memory than read_bytes() says. Errors of the
/// file and of check_fit().
PixelImage read_fitted(const std::string& path, const EncodeOptions& options);
/// Bytes held at the most while read_fitted() reads an image of this header from a file of so many
/// bytes.
int64_t read_bytes(const io::ImageHeader& header, int64_t file_bytes, int64_t size,
                   const std::string& image_fit);

/// kInput where an image of this size cannot be fitted: too long and narrow.
void check_fit(int64_t width, int64_t height, int64_t size, const std::string& image_fit);

}  // namespace lft::data
