// The first samples as training sees them: rendered text with supervised tokens, images before and
// after fitting, a hash of the ids. Loads no weights, writes nothing, prints nothing.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "src/data/store/sample.h"
#include "src/recipe/recipe.h"

namespace lft::debug {

/// Consecutive tokens of one kind.
struct PreviewPiece {
  enum Kind {
    kText,
    kSupervised,
    kMasked,  // of an answer that the row excludes from the loss
    kMark
  } kind = kText;  // kMark: a special token: "<image x576>", "<s>"
  std::string text;
};

struct PreviewImage {
  std::string name;
  int64_t width = 0,
          height =
              0;  // as decoded and rotated; 0 for prepared data, which has only the fitted image
  bool whole_first = false;  // the tile of the whole picture comes before the grid, otherwise after
  data::PixelImage square = {};
};

struct Preview {
  std::string id, where;
  std::string left_out;  // the reason of data.on_bad_sample: skip; then nothing below is set
  std::vector<PreviewPiece> pieces;
  int64_t tokens = 0, supervised = 0, image_positions = 0;  // within data.max_tokens
  int64_t cut = 0, cut_supervised = 0;                      // after it
  int64_t answers = 0, masked = 0;  // of the row, and those that it excludes from the loss
  std::string ids_sha256;           // over the ids as decimal numbers joined by commas
  std::vector<PreviewImage> images;
};

/// The first `count` samples of the first epoch in the order of training. Throws what training
/// would throw.
std::vector<Preview> preview_samples(const recipe::Recipe& recipe, int64_t count);

/// The samples with these ids, or at these places as lft validate prints them ("rows.json[3]"), of
/// data.train or data.eval. kUsage if there is none.
std::vector<Preview> preview_rows(const recipe::Recipe& recipe,
                                  const std::vector<std::string>& rows);

/// The same rows with another data.template, such as a server's: one for each, with left_out if the
/// template refuses the row.
std::vector<Preview> under_template(const recipe::Recipe& recipe, const std::string& name,
                                    const std::vector<Preview>& previews);

/// The difference between the prompts of one row with two templates: "the same prompt", or the
/// first characters that differ.
std::string prompt_difference(const Preview& own, const Preview& other);

}  // namespace lft::debug
