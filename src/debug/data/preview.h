// The first samples as training will see them: rendered text with what is supervised, images before
// and after fitting, ids as a hash. Loads no weights, writes nothing, prints nothing.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "src/data/store/sample.h"
#include "src/recipe/recipe.h"

namespace lft::debug {

/// A run of tokens of one kind.
struct PreviewPiece {
  enum Kind {
    kText,
    kSupervised,
    kMasked,  // of an answer that the row says is not to be learnt
    kMark
  } kind = kText;  // kMark: a token that the text does not show as such: "<image x576>", "<s>"
  std::string text;
};

struct PreviewImage {
  std::string name;
  int64_t width = 0,
          height = 0;  // as decoded, EXIF turned; 0 for prepared data, which keeps the square alone
  data::PixelImage square;
};

struct Preview {
  std::string id, where;
  std::string left_out;  // why data.on_bad_sample: skip leaves it out; then nothing below is set
  std::vector<PreviewPiece> pieces;
  int64_t tokens = 0, supervised = 0, image_positions = 0;  // of what data.max_tokens leaves
  int64_t cut = 0, cut_supervised = 0;                      // after it
  int64_t answers = 0, masked = 0;  // of the row, and those of them that it says are not learnt
  std::string ids_sha256;           // of the ids as decimal numbers joined by commas
  std::vector<PreviewImage> images;
};

/// The first `count` samples of the first epoch in the order of training. Throws what training
/// would throw at them.
std::vector<Preview> preview_samples(const recipe::Recipe& recipe, int64_t count);

/// Those with these ids, or at these places as lft validate names them ("rows.json[3]"), of
/// data.train or else of data.eval. kUsage where there is none such.
std::vector<Preview> preview_rows(const recipe::Recipe& recipe,
                                  const std::vector<std::string>& rows);

/// The same rows under another data.template, to show what a server would ask: one for each, with
/// left_out where the template refuses the row.
std::vector<Preview> under_template(const recipe::Recipe& recipe, const std::string& name,
                                    const std::vector<Preview>& previews);

/// Where the prompts of one row part under two templates: "the same prompt", or the first
/// characters that differ.
std::string prompt_difference(const Preview& own, const Preview& other);

}  // namespace lft::debug
