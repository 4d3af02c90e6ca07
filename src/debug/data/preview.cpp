#include "src/debug/data/preview.h"

#include <algorithm>
#include <stdexcept>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/hash.h"
#include "src/data/encode.h"
#include "src/data/held_out.h"
#include "src/data/loader.h"
#include "src/data/prepared.h"
#include "src/io/decode/image_decode.h"
#include "src/train/inputs/recipe_encoding.h"
#include "src/train/inputs/run_data.h"

namespace lft::debug {
namespace {

void append(std::vector<PreviewPiece>& pieces, PreviewPiece::Kind kind, const std::string& text) {
  if (text.empty()) return;
  if (pieces.empty() || pieces.back().kind != kind || kind == PreviewPiece::kMark)
    pieces.push_back({kind, {}});
  pieces.back().text += text;
}

/// Whether a token shares a byte with an answer that is not trained on.
bool is_masked(const text::Token& token, const text::Rendered& rendered) {
  return std::ranges::any_of(rendered.masked, [&](const text::Rendered::Span& span) {
    return token.begin < span.end && token.end > span.begin;
  });
}

/// The rendered text by tokens, up to `kept`. Every byte of the text is in one piece: the tokens of
/// one character share it.
std::vector<PreviewPiece> make_pieces(const data::EncodedText& text, const data::Sample& kept,
                                      const text::Tokenizer& tokenizer,
                                      const std::vector<int64_t>& runs, int64_t image_token) {
  std::vector<PreviewPiece> pieces;
  auto run = runs.begin();
  size_t byte = 0, position = 0;
  for (size_t i = 0; i < text.tokens.size() && position < kept.input_ids.size(); ++i) {
    const text::Token& token = text.tokens[i];
    const auto end = std::max<size_t>(byte, token.end);
    const bool is_image = token.id == image_token;
    const int64_t positions = is_image ? *run++ : 1;
    if (is_image) {
      append(pieces, PreviewPiece::kMark, "<image x" + std::to_string(positions) + ">");
    } else if (token.begin == token.end) {
      append(pieces, PreviewPiece::kMark, tokenizer.token_of(token.id));
    } else {
      append(pieces,
             kept.labels[position] >= 0        ? PreviewPiece::kSupervised
             : is_masked(token, text.rendered) ? PreviewPiece::kMasked
                                               : PreviewPiece::kText,
             text.rendered.text.substr(byte, end - byte));
    }
    byte = end;
    position += static_cast<size_t>(positions);
  }
  return pieces;
}

std::string ids_hash(const std::vector<int64_t>& ids) {
  std::string text;
  for (const int64_t id : ids) text += (text.empty() ? "" : ",") + std::to_string(id);
  return sha256(text);
}

/// Sizes come from the files; prepared data has only the fitted squares. SmolVLM and Idefics3,
/// which mark each tile in the text, put the whole picture last, the LLaVA families put it first.
std::vector<PreviewImage> make_images(const data::Dataset& dataset, int64_t index,
                                      const data::Row& row, const io::ImageLimits& limits,
                                      const data::Sample& sample,
                                      const std::vector<family::ImagePlan>& plans) {
  std::vector<PreviewImage> images;
  const bool own = row.images == dataset.row(index).images;  // not those of a pair's other side
  for (size_t i = 0; i < sample.images.size(); ++i) {
    PreviewImage image{.name = row.images.at(i),
                       .width = 0,
                       .height = 0,
                       .whole_first = plans.at(i).runs.size() == 1,
                       .square = sample.images[i]};
    const io::FileBytes bytes = own ? dataset.image_bytes(index, i) : io::FileBytes();
    if (!bytes.empty()) {
      const io::RgbImage decoded = io::decode_image(bytes, image.name, limits);
      image.width = decoded.width;
      image.height = decoded.height;
    }
    images.push_back(std::move(image));
  }
  return images;
}

bool uses_prepared(const recipe::Recipe& recipe) {
  return data::is_prepared(recipe.data.eval) ||
         std::ranges::any_of(recipe.data.train.sources(), [](const recipe::Source& source) {
           return data::is_prepared(source.path);
         });
}

/// The training input, and the steps from its row to it.
Preview preview_sample(const data::Dataset& dataset, int64_t index, const data::Row& row,
                       const data::Sample& sample, const recipe::Recipe& recipe,
                       const text::Tokenizer& tokenizer, const data::EncodeOptions& options) {
  const std::vector<family::ImagePlan> images = data::plans_of(sample.images, options);
  const data::EncodedText text = data::encode_text(row, images, tokenizer, options);
  const data::Sample whole = data::expand_images(text, row, images, options);
  Preview preview;
  preview.id = row.id;
  preview.where = row.where;
  const std::vector<text::Turn> turns = row.turns();
  preview.answers = static_cast<int64_t>(turns.size());
  preview.masked = std::ranges::count(turns, false, &text::Turn::learnt);
  preview.tokens = static_cast<int64_t>(sample.input_ids.size());
  preview.supervised = sample.supervised();
  preview.image_positions =
      std::count(sample.input_ids.begin(), sample.input_ids.end(), options.config.image_token);
  preview.cut = static_cast<int64_t>(whole.input_ids.size()) - preview.tokens;
  preview.cut_supervised = whole.supervised() - preview.supervised;
  const bool prefix =
      preview.cut >= 0 &&
      std::equal(sample.input_ids.begin(), sample.input_ids.end(), whole.input_ids.begin()) &&
      std::equal(sample.labels.begin(), sample.labels.end(), whole.labels.begin());
  if (!prefix) {
    const std::string where = recipe.data.train.text() + ": " + data::row_place(row);
    if (!uses_prepared(recipe)) throw std::logic_error("two encodings of one row differ: " + where);
    refuse(ErrorKind::kInput, "the prepared tokens or labels are not those of the row", where, {},
           {}, "run lft prepare again");
  }
  std::vector<int64_t> runs;
  for (const family::ImagePlan& image : images)
    runs.insert(runs.end(), image.runs.begin(), image.runs.end());
  preview.pieces = make_pieces(text, sample, tokenizer, runs, options.config.image_token);
  preview.ids_sha256 = ids_hash(sample.input_ids);
  preview.images = make_images(dataset, index, row, options.image_limits, sample, images);
  return preview;
}

/// The same, of a pair both sides; or the reason why data.on_bad_sample: skip excludes the row.
void add_preview(std::vector<Preview>& previews, const data::Dataset& dataset, int64_t index,
                 const recipe::Recipe& recipe, const text::Tokenizer& tokenizer,
                 const data::EncodeOptions& options) {
  try {
    const data::Sample sample = dataset.get(index);
    const data::Row row = dataset.row(index);
    previews.push_back(preview_sample(dataset, index, row, sample, recipe, tokenizer, options));
    if (row.desirable) previews.back().id += *row.desirable ? " (desirable)" : " (undesirable)";
    if (!row.rejected) return;
    previews.back().id += " (chosen)";
    previews.push_back(preview_sample(dataset, index, *row.rejected, sample.rejected.at(0), recipe,
                                      tokenizer, options));
  } catch (const Error& error) {
    if (!options.skip_bad || error.kind() != ErrorKind::kInput) throw;
    const ErrorInfo& info = error.info();
    Preview preview;
    preview.id = dataset.id(index);
    preview.where = dataset.row(index).where;
    preview.left_out = info.what + (info.found.empty() ? "" : ": " + info.found);
    previews.push_back(std::move(preview));
  }
}

/// The row with this id or at this position; -1 if there is none.
int64_t find_row(const data::Dataset& dataset, const std::string& asked) {
  for (int64_t i = 0; i < dataset.size(); ++i) {
    if (dataset.id(i) == asked || dataset.row(i).where == asked) return i;
  }
  return -1;
}

}  // namespace

std::vector<Preview> preview_samples(const recipe::Recipe& recipe, int64_t count) {
  const auto [tokenizer, options] = train::recipe_encoding(recipe);
  std::unique_ptr<data::Dataset> dataset = train::open_train(recipe, *tokenizer, options);
  if (recipe.data.eval_share > 0)
    dataset = data::hold_out(std::move(dataset), recipe.data.eval_share,
                             static_cast<uint64_t>(recipe.train.seed))
                  .train;
  data::EpochOrder order({.seed = static_cast<uint64_t>(recipe.train.seed),
                          .shuffle = recipe.data.shuffle.rows,
                          .blocks = recipe.data.shuffle.blocks,
                          .sources = train::source_shares(recipe, *dataset)},
                         dataset->size(), /*epoch=*/0);
  std::vector<Preview> previews;
  for (int64_t i = 0; i < std::min(count, order.size()); ++i)
    add_preview(previews, *dataset, order.at(i), recipe, *tokenizer, options);
  return previews;
}

std::vector<Preview> preview_rows(const recipe::Recipe& recipe,
                                  const std::vector<std::string>& rows) {
  const auto [tokenizer, options] = train::recipe_encoding(recipe);
  std::vector<std::unique_ptr<data::Dataset>> datasets;
  datasets.push_back(train::open_train(recipe, *tokenizer, options));
  if (!recipe.data.eval.empty()) {
    datasets.push_back(
        data::open_dataset(recipe.data.eval, recipe.data.image_root, *tokenizer, options));
  }
  std::vector<Preview> previews;
  for (const std::string& asked : rows) {
    const size_t before = previews.size();
    for (const auto& dataset : datasets) {
      const int64_t index = find_row(*dataset, asked);
      if (index < 0 || previews.size() > before) continue;
      add_preview(previews, *dataset, index, recipe, *tokenizer, options);
    }
    if (previews.size() > before) continue;
    refuse(ErrorKind::kUsage, "no row has this id or place", "--row", quote_text(asked),
           "as lft validate names it: an id, rows.json[3] or rows.jsonl:3");
  }
  return previews;
}

std::vector<Preview> under_template(const recipe::Recipe& recipe, const std::string& name,
                                    const std::vector<Preview>& previews) {
  recipe::Recipe other = recipe;
  other.data.chat_template = name;
  other.data.on_bad_sample = recipe::BadSampleRule::kSkip;  // its errors are shown
  std::vector<std::string> rows;
  for (const Preview& preview : previews)
    if (rows.empty() || rows.back() != preview.where) rows.push_back(preview.where);
  return preview_rows(other, rows);
}

std::string prompt_difference(const Preview& own, const Preview& other) {
  if (!own.left_out.empty() || !other.left_out.empty()) return "a template leaves the row out";
  const auto text_of = [](const Preview& preview) {
    std::string text;
    for (const PreviewPiece& piece : preview.pieces) text += piece.text;
    return text;
  };
  const std::string a = text_of(own), b = text_of(other);
  if (a == b)
    return own.ids_sha256 == other.ids_sha256 ? "the same prompt, token for token"
                                              : "the same text in other tokens";
  constexpr size_t kBefore = 20, kShown = 60;
  const size_t at =
      static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  const size_t begin = at < kBefore ? 0 : at - kBefore;
  return "the prompts differ from byte " + std::to_string(at) +
         " on: " + quote_text(a.substr(begin, kShown), 4 * kShown) + ", and " +
         quote_text(b.substr(begin, kShown), 4 * kShown);
}

}  // namespace lft::debug
