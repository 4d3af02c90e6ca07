// lft preview: it shows what training reads, and nothing in it can move a cursor or run in
// a browser.
#include "debug/validate_fixture.h"
#include "src/base/hash.h"
#include "src/data/loader.h"
#include "src/debug/data/preview.h"
#include "src/debug/data/preview_print.h"
#include "src/hf/model_dir.h"
#include "src/io/image.h"
#include "support/expect_error.h"

namespace lft::preview_test {
using namespace lft::data;
using namespace lft::debug;
using namespace lft::hf;
using namespace lft::io;
using namespace lft::text;
namespace {

using test::row;

class PreviewTest : public test::DataTest {
 protected:
  std::vector<Preview> preview(int64_t count) {
    save();
    return preview_samples(recipe_, count);
  }
  std::string text(const Preview& preview, bool terminal = false) const {
    return preview_text(preview, recipe_, terminal);
  }
  /// A single row under the plain template.
  Preview alone(const std::string& question, const std::string& answer) {
    lines_ = {row("one", "", question, answer).dump()};
    recipe_.data.chat_template = "plain";
    return preview(1).at(0);
  }
  /// Training's encoding of a row.
  Sample sample(int64_t index) const {
    const auto tokenizer = Tokenizer::load(recipe_.model.path);
    const EncodeOptions options = encode_options(
        recipe_.model.path, ModelDir::config_only(recipe_.model.path).config, *tokenizer,
        {{recipe_.data.chat_template, recipe_.data.image_fit.word()}, recipe_.data.max_tokens},
        nullptr);
    return open_dataset(recipe_.data.train.path, recipe_.data.image_root, *tokenizer, options)
        ->get(index);
  }
};

std::string from_base64(const std::string& text) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text.substr(0, text.find('='))) {
    bits = bits << 6 | static_cast<uint32_t>(digits.find(c));
    count += 6;
    if (count >= 8) bytes += static_cast<char>(bits >> (count -= 8));
  }
  return bytes;
}

bool contains(const std::string& text, const std::string& piece) {
  return text.find(piece) != std::string::npos;
}

TEST_F(PreviewTest, MarksWhatIsSupervised) {
  recipe_.data.shuffle = false;
  const Preview first = preview(1).at(0);
  const std::string shown = text(first);
  EXPECT_TRUE(contains(shown, "\n<s>USER: <image x16>\nWhat? ASSISTANT:[[ red</s>]]\n")) << shown;
  EXPECT_TRUE(contains(shown, "sample   id \"row0\"  " + line(0) + "\n")) << shown;
  EXPECT_TRUE(contains(shown, "image    red0.bmp  20 x 18 -> 16 x 16 (pad)\n")) << shown;
  // <s>, mark, "USER:", mark; 16 for the image; mark, line break, "What?", mark, "ASSISTANT:";
  // mark, "red", </s>.
  EXPECT_TRUE(contains(shown, "tokens   47, 16 of them image positions, 5 supervised (10.6%)\n"))
      << shown;
  EXPECT_FALSE(contains(shown, "\x1b"));
  const std::string coloured = text(first, true);
  EXPECT_TRUE(contains(coloured, "\nWhat? ASSISTANT:\x1b[1;32m red</s>\x1b[0m\n")) << coloured;
  EXPECT_FALSE(contains(coloured, "[["));
}

TEST_F(PreviewTest, EveryTurnsAnswerIsMarkedAlone) {
  nlohmann::json two = row("two", "", "A", "b");
  two["conversations"].push_back({{"from", "human"}, {"value", "C"}});
  two["conversations"].push_back({{"from", "gpt"}, {"value", "d"}});
  lines_ = {two.dump()};
  EXPECT_TRUE(contains(text(preview(1).at(0)),
                       "<s>USER: A ASSISTANT:[[ b</s>]] USER: C ASSISTANT:[[ d</s>]]\n"));
  recipe_.data.chat_template = "llava-v1";
  EXPECT_TRUE(contains(text(preview(1).at(0)),
                       "questions. USER: A ASSISTANT:[[ b</s>]]USER: C ASSISTANT:[[ d</s>]]\n"));
}

TEST_F(PreviewTest, AMaskedAnswerIsShownAsSuch) {
  nlohmann::json two = row("two", "", "A", "b");
  two["conversations"].push_back({{"from", "human"}, {"value", "C"}});
  two["conversations"].push_back({{"from", "gpt"}, {"value", "d"}});
  lines_ = {two.dump()};
  EXPECT_FALSE(contains(text(preview(1).at(0)), "masked")) << text(preview(1).at(0));
  two["conversations"][1]["loss"] = false;
  lines_ = {two.dump()};
  const std::vector<Preview> shown = preview(1);
  const std::string plain = text(shown.at(0)), page = preview_page(shown, recipe_);
  EXPECT_TRUE(contains(plain, "<s>USER: A ASSISTANT:(( b</s>)) USER: C ASSISTANT:[[ d</s>]]\n"))
      << plain;
  EXPECT_TRUE(contains(
      plain, "masked   1 of 2 answers, by weight 0 or loss false: excluded from the loss\n"))
      << plain;
  EXPECT_TRUE(contains(text(shown.at(0), true), "ASSISTANT:\x1b[9;31m b</s>\x1b[0m USER"));
  EXPECT_TRUE(contains(page, "<del> b&lt;/s&gt;</del>")) << page;
  save();
  prepare();
  EXPECT_EQ(text(preview_samples(recipe_, 1).at(0)), plain);
}

/// sha256sum of "1,259,100,101,102,2": <s>, the word mark, a, b, c, </s>.
TEST_F(PreviewTest, HashOfTheIds) {
  const Preview one = alone("ab", "c");
  EXPECT_EQ(one.ids_sha256, "d6db153fcbd8e045549e6c42f786850e4ffa1e964b15dca9c10877eaa4caa29a");
  EXPECT_TRUE(contains(
      text(one),
      "ids      sha256 "
      "d6db153fcbd8e045549e6c42f786850e4ffa1e964b15dca9c10877eaa4caa29a\n<s>ab[[c</s>]]\n"))
      << text(one);
}

TEST_F(PreviewTest, ShowsTheFirstStepsSamplesInTheirOrder) {
  for (const bool shuffle : {true, false}) {
    recipe_.data.shuffle = shuffle;
    recipe_.train.seed = 7;
    const std::vector<Preview> previews = preview(5);
    const auto tokenizer = Tokenizer::load(recipe_.model.path);
    const EncodeOptions options =
        encode_options(recipe_.model.path, ModelDir::config_only(recipe_.model.path).config,
                       *tokenizer, {{"llava-hf", "pad"}, 2048}, nullptr);
    const auto dataset =
        open_dataset(recipe_.data.train.path, recipe_.data.image_root, *tokenizer, options);
    Loader loader(*dataset, {.batch_size = 5, .workers = 1, .seed = 7, .shuffle = shuffle});
    const StepSamples step = loader.next();
    ASSERT_EQ(previews.size(), 5u);
    for (size_t i = 0; i < 5; ++i) EXPECT_EQ(previews[i].id, step.micro[0][i].id) << i;
  }
  EXPECT_EQ(preview(1000).size(), static_cast<size_t>(kRows));
}

TEST_F(PreviewTest, RowsThatAreHeldOutAreNotShown) {
  recipe_.data.eval_share = 0.25;
  EXPECT_EQ(preview(1000).size(), static_cast<size_t>(kRows - kRows / 4));
}

TEST_F(PreviewTest, SaysWhatTheLimitCuts) {
  recipe_.data.max_tokens = 10;
  const std::string shown =
      text(alone("abcd", "efgh"));  // <s>, mark, abcd, efgh: </s> is the eleventh
  EXPECT_TRUE(contains(shown,
                       "tokens   10, 0 of them image positions, 4 supervised (40.0%); 1 more "
                       "beyond data.max_tokens = 10"))
      << shown;
  EXPECT_TRUE(contains(shown, ", 1 of them supervised\n")) << shown;
  EXPECT_TRUE(contains(shown, "\n<s>abcd[[efgh]]\n")) << shown;
}

TEST_F(PreviewTest, TextCannotMoveTheCursor) {
  for (const bool terminal : {false, true}) {
    const std::string shown = text(alone("a\x1b[2J\r\x07", "\u202eb\u4e2d"), terminal);
    EXPECT_TRUE(contains(shown, "a\\x1b[2J\\r\\x07")) << shown;
    EXPECT_TRUE(contains(shown, "\\u202eb\u4e2d</s>"))
        << shown;  // a character of three byte tokens appears once
    EXPECT_FALSE(contains(shown, "\u202e"));
  }
}

TEST_F(PreviewTest, BadSamplesStopItOrAreNamed) {
  recipe_.data.shuffle = false;
  lines_[1] = row("row1", "nowhere.png", "<image>\nWhat?", "red").dump();
  EXPECT_LFT_ERROR(ErrorKind::kInput, line(1) + " (id \"row1\")", preview(3));
  recipe_.data.on_bad_sample = "skip";
  const std::vector<Preview> previews = preview(3);
  ASSERT_EQ(previews.size(), 3u);
  EXPECT_TRUE(contains(text(previews[1]), "left out ")) << text(previews[1]);
  EXPECT_TRUE(contains(preview_page(previews, recipe_), "left out: ")) << text(previews[1]);
  EXPECT_TRUE(contains(text(previews[2]), "[[ blue</s>]]")) << text(previews[2]);
}

TEST_F(PreviewTest, ThePageHoldsThePixelsThatTheModelSees) {
  recipe_.data.shuffle = false;
  for (const char* fit : {"pad", "crop"}) {
    recipe_.data.image_fit = fit;
    const std::string page = preview_page(preview(1), recipe_);
    const std::string begin = "src=\"data:image/png;base64,";
    const size_t at = page.find(begin);
    ASSERT_NE(at, std::string::npos);
    const size_t from = at + begin.size();
    const RgbImage shown =
        decode_image(from_base64(page.substr(from, page.find('"', from) - from)), "page");
    const PixelImage expected = sample(0).images.at(0);
    ASSERT_EQ(shown.width, expected.shape.width);
    for (size_t i = 0; i < expected.chw.size(); ++i) {
      const size_t plane = expected.chw.size() / 3;
      ASSERT_EQ(shown.rgb_hwc[3 * (i % plane) + i / plane], expected.chw[i]) << i;
    }
    EXPECT_TRUE(contains(page, std::string("20 x 18 -&gt; 16 x 16 (") + fit + ")"));
    EXPECT_TRUE(contains(page, "What? ASSISTANT:<mark> red&lt;/s&gt;</mark>")) << page;
  }
}

/// Five tiles of one colour each: the whole picture, and a grid of 2 rows and 2 columns.
TEST_F(PreviewTest, TheWholePictureComesBeforeAGridOfItsTiles) {
  for (const bool whole_first : {true, false}) {
    PreviewImage image{.name = "a.png", .width = 9, .height = 9, .whole_first = whole_first};
    image.square.shape = {.tiles = 5, .height = 2, .width = 2, .rows = 2, .columns = 2};
    for (uint8_t tile = 0; tile < 5; ++tile)
      image.square.chw.insert(image.square.chw.end(), 12, tile);
    Preview one;
    one.images = {image};
    const std::string page = preview_page({one}, recipe_);
    std::vector<int> shown;
    const std::string start = "data:image/png;base64,";
    size_t grid = page.find("grid-template-columns: repeat(2, 1fr)"), before = 0;
    for (size_t at = page.find(start); at != std::string::npos; at = page.find(start, at + 1)) {
      const std::string bytes =
          from_base64(page.substr(at + start.size(), page.find('"', at) - at - start.size()));
      const RgbImage pixels = decode_image(bytes, "tile");
      EXPECT_EQ(pixels.width, 2);
      EXPECT_EQ(pixels.height, 2);
      shown.push_back(pixels.rgb_hwc.at(0));
      before += at < grid ? 1 : 0;
    }
    EXPECT_EQ(shown, (whole_first ? std::vector{0, 1, 2, 3, 4} : std::vector{4, 0, 1, 2, 3}));
    EXPECT_EQ(before, 1u) << "the whole picture is not part of the grid";
    EXPECT_TRUE(contains(page, "5 tiles of 2 x 2"));
  }
}

TEST_F(PreviewTest, ThePageEscapesAllTextAndLoadsNothing) {
  lines_ = {row("<script>id()</script>", "", "<script>question()</script>&\"",
                "</pre><img src=x onerror=a()>")
                .dump()};
  const std::string page = preview_page(preview(1), recipe_);
  EXPECT_FALSE(contains(page, "<script")) << page;
  EXPECT_FALSE(contains(page, "<img")) << page;
  EXPECT_TRUE(contains(page, "&lt;script&gt;question()&lt;/script&gt;&amp;&quot;")) << page;
  EXPECT_TRUE(contains(page, "<mark> &lt;/pre&gt;&lt;img src=x onerror=a()&gt;&lt;/s&gt;</mark>"))
      << page;
  EXPECT_TRUE(contains(page, "default-src 'none'"));
  for (const char* outside : {"http:", "https:", "url(", "<link", "@import"})
    EXPECT_FALSE(contains(page, outside)) << outside;
}

TEST_F(PreviewTest, PreparedDataShowsTheSame) {
  const std::vector<Preview> plain = preview(4);
  prepare();
  const std::vector<Preview> again = preview_samples(recipe_, 4);
  ASSERT_EQ(again.size(), plain.size());
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_EQ(again[i].ids_sha256, plain[i].ids_sha256);
    EXPECT_EQ(again[i].where, plain[i].where);
    EXPECT_EQ(again[i].images.at(0).square.chw, plain[i].images.at(0).square.chw);
    EXPECT_TRUE(contains(text(again[i]), "prepared -> 16 x 16 (pad)")) << text(again[i]);
  }
}

TEST_F(PreviewTest, ARowByItsIdOrPlace) {
  lines_.push_back(row("odd one", "", "Why?", "because").dump());
  save();
  const std::vector<Preview> shown = preview_rows(recipe_, {"odd one", line(2)});
  ASSERT_EQ(shown.size(), 2u);
  EXPECT_EQ(shown[0].where, line(kRows));
  EXPECT_EQ(shown[1].id, "row2");
  EXPECT_EQ(shown[1].images.size(), 1u);
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "no row has this id or place",
                   preview_rows(recipe_, {"row2", "row77"}));
  recipe_.data.eval = recipe_.data.train.path;
  lines_.pop_back();
  save();
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "odd one", preview_rows(recipe_, {"odd one"}));
  recipe_.data.eval =
      run_.dir().write("held.jsonl", row("odd one", "", "Why?", "because").dump() + "\n");
  EXPECT_EQ(preview_rows(recipe_, {"odd one"}).at(0).where, run_.dir().file("held.jsonl") + ":1");
}

}  // namespace
}  // namespace lft::preview_test
