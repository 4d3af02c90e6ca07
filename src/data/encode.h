// A row's way to a sample, part by part: encode_row runs them all, and who looks closer (validate,
// preview) runs one.
#pragma once
#include <string>
#include <vector>

#include "kernels/common/error.h"
#include "src/data/dataset.h"
#include "src/data/rows/row_reader.h"
#include "src/text/chat/chat_template.h"

namespace lft::data {

/// "file:line (id "x")", as every error of a row names it.
std::string row_place(const Row& row);

constexpr char kMendImage[] =
    "mend the file, or the row's file name, or data.image_root; data.on_bad_sample: skip leaves "
    "such rows out";
/// Again, with the row's place before the image's, and with `next` where the error has no advice of
/// its own.
[[noreturn]] void throw_image_error(const Row& row, const Error& error, const std::string& next);

/// As many <image> marks in the questions as images, and none elsewhere; else kInput.
void check_marks(const Row& row);

/// What each image of a row becomes, in order. Where not all become the same, the headers of the
/// files are read; errors of them name the row.
std::vector<family::ImagePlan> plan_images(const Row& row, const std::string& image_root,
                                           const EncodeOptions& options);

/// The same of images that were read already.
std::vector<family::ImagePlan> plans_of(const std::vector<PixelImage>& images,
                                        const EncodeOptions& options);

/// A row as text and as tokens: nothing is cut, a run of image positions is one token.
struct EncodedText {
  text::Rendered rendered;          // with what images expand to
  std::vector<text::Token> tokens;  // of rendered.text
  std::vector<bool> supervised;     // by token
  bool special_read = false;        // as in Sample
};
/// The row's prompt, with `generate` up to where the next answer begins. An error of the template
/// names the row.
text::Rendered render_row(const Row& row, const EncodeOptions& options, bool generate);
/// kInput where a token has no embedding row or the image tokens are not those that the images
/// become.
EncodedText encode_rendered(const Row& row, text::Rendered rendered,
                            const std::vector<family::ImagePlan>& images,
                            const text::Tokenizer& tokenizer, const EncodeOptions& options);
/// Both together, with the row's answers.
EncodedText encode_text(const Row& row, const std::vector<family::ImagePlan>& images,
                        const text::Tokenizer& tokenizer, const EncodeOptions& options);

/// The prompt to generate from that asks the row's answer number `answer` of its messages, or,
/// where it is their number, the one to come; as a server is asked. `sample` is the row's. No
/// labels.
Sample encode_question(const Row& row, size_t answer, const Sample& sample,
                       const text::Tokenizer& tokenizer, const EncodeOptions& options);

/// Ids and labels with every image token repeated for its positions; no pixels. The first label is
/// always -100: nothing predicts it.
Sample expand_images(const EncodedText& text, const Row& row,
                     const std::vector<family::ImagePlan>& images, const EncodeOptions& options);

/// Drops what lies after max_tokens; kInput where that would cut an image.
void truncate_sample(Sample& sample, const Row& row, const std::vector<family::ImagePlan>& images,
                     const EncodeOptions& options);

/// An image's size as it is seen: its orientation applied.
image::Size upright_size(const io::ImageHeader& header);
/// Of an image file: the size as it is stored.
io::ImageHeader read_header_of(const io::FileHandle& file, const io::ImageLimits& limits);
/// What the model sees of an image file, decoded with no more memory than read_bytes() says, which
/// are taken of options.reading. Errors of the file and of the model's processor.
PixelImage read_fitted(const io::FileHandle& file, const EncodeOptions& options, size_t images = 1);
/// Bytes held at the most while read_fitted() reads an image of this header from a file of so many
/// bytes.
int64_t read_bytes(const io::ImageHeader& header, int64_t file_bytes,
                   const family::ImageProcessor& processor);

/// What data.template and --template may name besides files.
std::vector<std::string> template_names();

/// "auto": the chat template that comes with the checkpoint, else the family's own by name, which
/// `notices` reports. A name: LLaVA's form or a family's template. Anything else: a file of Jinja.
/// `eos` ends an answer where the template ends none. kUsage for a bad setting, kInput for a bad
/// template.
std::shared_ptr<const text::ChatTemplate> choose_chat(const std::string& model_dir,
                                                      const family::ModelConfig& config,
                                                      const text::Tokenizer& tokenizer,
                                                      const family::InputSettings& settings,
                                                      const std::string& eos,
                                                      std::vector<std::string>& notices);

}  // namespace lft::data
