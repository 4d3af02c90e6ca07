// No part of a row is dropped silently: keys and marks that lft does not use, masks of
// answers, system texts, and the ways in which other tools name an image.
#include <gtest/gtest.h>

#include "data/fixtures.h"
#include "src/data/encode.h"
#include "src/data/rows/row_keys.h"
#include "src/data/rows/row_reader.h"
#include "src/text/chat/named_form.h"
#include "support/expect_error.h"
#include "support/slurp.h"

namespace lft::row_keys_test {
using namespace lft::data;
using namespace lft::io;
using namespace lft::text;
namespace {

using test::TempDir;

const char* const kTalk =
    R"({"conversations":[{"from":"human","value":"Q"},{"from":"gpt","value":"A"}]})";

Json talk() { return Json::parse(kTalk); }
/// talk() with an extra key in the row, or in its answer.
Json with(const std::string& key, const Json& value) {
  Json row = talk();
  row[key] = value;
  return row;
}
Json answer_with(const std::string& key, const Json& value) {
  Json row = talk();
  row["conversations"][1][key] = value;
  return row;
}

Row parse(const Json& json) {
  RowKeys keys;
  return parse_row(json, "d.json[3]", 3, keys);
}
/// The row keys that are counted, if they are not errors.
std::set<std::string> counted(const Json& json) {
  RowKeys keys;
  parse_row(json, "d.json[3]", 3, keys, {.count_unknown = true, .count_marks = true});
  return keys.unused;
}
std::string refusal(const Json& json, bool counts = false) {
  RowKeys keys;
  return test::thrown_text(
      ErrorKind::kInput,
      [&] {
        parse_row(json, "d.json[3]", 3, keys, {.count_unknown = counts, .count_marks = counts});
      },
      __FILE__, __LINE__);
}
std::optional<std::string> system_text(const Row& row) {
  const std::string* text = text::system_of(row.messages());
  return text == nullptr ? std::nullopt : std::optional(*text);
}
void expect_holds(const std::string& text, const std::vector<std::string>& pieces) {
  for (const std::string& piece : pieces)
    EXPECT_NE(text.find(piece), std::string::npos) << piece << " in\n" << text;
}

TEST(RowKeys, AKeyThatIsNotUsedIsAnErrorOrCounted) {
  const Json row = with("imgs", {"a.png"}), answer = answer_with("valeu", "B");
  expect_holds(refusal(row), {"d.json[3]", "a key that lft does not use", "\"imgs\"",
                              "write \"images\"", "data.unknown_keys: warn"});
  expect_holds(refusal(answer), {"d.json[3]: conversations[1]", "\"valeu\"", "write \"value\""});
  EXPECT_EQ(counted(row), (std::set<std::string>{"\"imgs\""}));
  EXPECT_EQ(counted(answer), (std::set<std::string>{"conversations[].\"valeu\""}));
  EXPECT_TRUE(counted(talk()).empty());
}

TEST(RowKeys, MetadataAndWhatHoldsNothingIsPassedOver) {
  Json row = talk();
  for (const std::string& key : metadata_keys()) {
    if (key != "id") row[key] = row["conversations"][1][key] = "x";
  }
  for (const Json& nothing : {Json(), Json(""), Json::array(), Json::object()})
    row["videos"] = row["system"] = row["imgs"] = row["conversations"][0]["name"] = nothing;
  row["system"] = nullptr;
  EXPECT_EQ(parse(row).turns().at(0).answer, "A");
  EXPECT_TRUE(counted(row).empty());
}

TEST(RowKeys, TheReferenceListsTheKeysOfMetadata) {
  const std::string page = test::slurp(LFT_SOURCE_DIR "/recipes/README.md");
  for (const std::string& key : metadata_keys())
    EXPECT_NE(page.find("`" + key + "`"), std::string::npos) << key;
}

TEST(RowKeys, OtherKindsOfSamplesAreRefusedByName) {
  for (const char* key :
       {"video", "videos", "audio", "audios", "objects", "boxes", "bbox", "weights", "loss_weight",
        "functions", "rejected_response", "chosen", "loss_scale", "system_prompt"}) {
    for (const bool counts : {false, true})
      expect_holds(refusal(with(key, {"a"}), counts),
                   {"a key with a meaning that lft does not support", key, "next: "});
  }
  for (const char* mark : {"<video>", "<audio>", "<bbox>", "<ref-object>"}) {
    for (const size_t message : {0U, 1U}) {
      Json row = talk();
      row["conversations"][message]["value"] = std::string("see ") + mark;
      expect_holds(refusal(row),
                   {"a mark of another tool", mark, "conversations[" + std::to_string(message)});
      EXPECT_EQ(counted(row), (std::set<std::string>{std::string(mark) + " in a text"}));
    }
  }
}

TEST(RowKeys, AFileCountsThemInOneWarningWithTheirNames) {
  const TempDir dir;
  const std::string path =
      dir.write("d.jsonl", with("note", "x").dump() + "\n" + with("note", "y").dump() + "\n" +
                               kTalk + "\n" + answer_with("rank", 1).dump() + "\n");
  testing::internal::CaptureStderr();
  EXPECT_EQ(read_row_file(path, {.count_unknown = true}).rows.size(), 4U);
  const std::string said = testing::internal::GetCapturedStderr();
  expect_holds(said, {"warning: " + path +
                      ": lft does not use \"note\" (2 rows), conversations[].\"rank\" (1 row)"});
  EXPECT_EQ(said.find("warning: "), said.rfind("warning: "));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "d.jsonl:1", read_row_file(path, {}));
  EXPECT_EQ(read_row_file(path, {.keep_bad = true}).bad.size(), 3U);
}

TEST(Masks, WeightAndLossSayWhetherAnAnswerIsLearnt) {
  for (const auto& [key, value] :
       {std::pair<const char*, Json>{"weight", 0}, {"weight", 0.0}, {"loss", false}}) {
    EXPECT_FALSE(parse(answer_with(key, value)).turns().at(0).learnt) << key;
    EXPECT_FALSE(parse(with(key, value)).turns().at(0).learnt) << key;
  }
  for (const auto& [key, value] : {std::pair<const char*, Json>{"weight", 1},
                                   {"weight", 1.0},
                                   {"weight", nullptr},
                                   {"loss", true}})
    EXPECT_TRUE(parse(answer_with(key, value)).turns().at(0).learnt) << key;
  Json own = answer_with("loss", true);
  own["weight"] = 0;  // the row's; the answer's own takes precedence
  EXPECT_TRUE(parse(own).turns().at(0).learnt);
  Json asked = talk();
  asked["conversations"][0]["weight"] = 0;  // SlimOrca, OpenChat
  EXPECT_TRUE(parse(asked).turns().at(0).learnt);
}

/// Every cell of a table is a text.
TEST(Masks, ATableHasThemAsTexts) {
  for (const auto& [name, cells] :
       {std::pair<const char*, std::vector<std::string>>{"weight", {"0", "1", "", "1.0"}},
        {"loss", {"false", "True", "", "1"}}}) {
    const test::TempDir dir;
    std::string text = "question,answer," + std::string(name) + "\n";
    for (const std::string& cell : cells) text += "Q,A," + cell + "\n";
    const std::vector<Row> rows = read_rows(dir.write("d.csv", text));
    for (size_t i = 0; i < rows.size(); ++i)
      EXPECT_EQ(rows[i].turns().at(0).learnt, i > 0) << name << " " << cells[i];
    EXPECT_LFT_ERROR(ErrorKind::kInput, "is neither of the two",
                     read_rows(dir.write("d.csv", text + "Q,A,0.5\n")));
  }
}

TEST(Masks, OtherWeightsAreRefused) {
  for (const Json& value : {Json(0.5), Json(2), Json(-1), Json("0")})
    expect_holds(refusal(answer_with("weight", value)),
                 {"d.json[3]: conversations[1]", "an answer is learnt or not", "next: "});
  expect_holds(refusal(with("loss", "no")), {"\"loss\" is neither of the two"});
  Json both = answer_with("loss", true);
  both["conversations"][1]["weight"] = 0;
  expect_holds(refusal(both), {"contradict each other"});
  Json asked = talk();
  asked["conversations"][0]["loss"] = true;
  expect_holds(refusal(asked), {"a message that is to be learnt and is no answer"});
}

TEST(Masks, TheLabelsLeaveMaskedAnswersOut) {
  Json json = Json::parse(
      R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"A","weight":0},)"
      R"({"role":"user","content":"R"},{"role":"assistant","content":"B"}]})");
  const auto labels = [&] {
    const Sample sample = encode_row(parse(json), "", test::ByteTokenizer(), test::small_options());
    std::vector<int64_t> learnt;
    for (const int64_t label : sample.labels) {
      if (label != -100) learnt.push_back(label);
    }
    return test::ByteTokenizer().decode(learnt, false);
  };
  EXPECT_EQ(labels(), " B</s>");
  json["messages"][1]["weight"] = 1;
  EXPECT_EQ(labels(), " A</s> B</s>");
  json["messages"][1]["weight"] = json["messages"][3]["weight"] = 0;
  EXPECT_EQ(labels(), "");
}

TEST(Masks, AndSystemTextsAreKeptInPreparedRows) {
  Row row = parse(answer_with("weight", 0));
  row.conversation.messages.insert(row.conversation.messages.begin(),
                                   {.role = "system", .text = "Be brief."});
  const Row back = row_from_json(row_to_json(row), "x");
  EXPECT_EQ(row_to_json(back), row_to_json(row));
  EXPECT_FALSE(back.turns().at(0).learnt);
  EXPECT_EQ(system_text(back), "Be brief.");
  Json beyond = row_to_json(row);
  beyond["messages"][0] = {"user"};
  EXPECT_LFT_ERROR(ErrorKind::kInput, "malformed", row_from_json(beyond, "x"));
}

TEST(Masks, OfRowsThatWerePreparedAsTurnsAreRead) {
  Json turns = Json::parse(R"({"id":"a","where":"x","images":[],"system":"Be.","masked":[0],)"
                           R"("turns":[["Q","A"],["R","B"]]})");
  const Row back = row_from_json(turns, "x");
  EXPECT_EQ(system_text(back), "Be.");
  EXPECT_FALSE(back.turns().at(0).learnt);
  EXPECT_EQ(back.turns().at(1).answer, "B");
  turns["masked"] = {7};
  EXPECT_LFT_ERROR(ErrorKind::kInput, "malformed", row_from_json(turns, "x"));
}

TEST(SystemTexts, StandInThePlaceOfTheTemplatesOwn) {
  Json row = with("system", "Be brief.");
  EXPECT_EQ(system_text(parse(row)), "Be brief.");
  Json talk_after_system = {Json{{"from", "system"}, {"value", "Be brief."}}};
  for (const Json& message : row["conversations"]) talk_after_system.push_back(message);
  row["conversations"] = talk_after_system;
  EXPECT_EQ(system_text(parse(row)), "Be brief.");
  row["conversations"][0]["value"] = "Be long.";
  expect_holds(refusal(row), {"two system texts"});
  row.erase("system");
  EXPECT_EQ(system_text(parse(row)), "Be long.");
  expect_holds(refusal(with("system", 3)), {"\"system\" is no text"});
  EXPECT_FALSE(system_text(parse(with("system", " \n"))));
  // A message without a text is an empty system text, and a key with a text overrides it.
  row["conversations"][0]["value"] = "";
  EXPECT_EQ(system_text(parse(row)), "");
  EXPECT_EQ(system_text(row_from_json(row_to_json(parse(row)), "x")), "");
  row["system"] = "Be brief.";
  EXPECT_EQ(system_text(parse(row)), "Be brief.");

  EncodeOptions options = test::small_options();
  const Row brief = parse(with("system", "Be brief."));
  const auto text = [&](const std::string& name) {
    options.chat = text::named_form(name, "</s>", "<image>");
    return encode_text(brief, {}, test::ByteTokenizer(), options).rendered.text;
  };
  EXPECT_EQ(text("llava-v1"), "Be brief. USER: Q ASSISTANT: A</s>");
  EXPECT_EQ(text("llava-hf"), "Be brief. USER: Q ASSISTANT: A</s>");
  const std::string plain = test::thrown_text(
      ErrorKind::kInput, [&] { text("plain"); }, __FILE__, __LINE__);
  expect_holds(plain, {"a system text, for which the template has no place", "d.json[3]",
                       "template plain", "llava-v1, llava-hf"});
  Row marked = brief;
  marked.conversation.messages[0].text = "<image>";
  EXPECT_LFT_ERROR(ErrorKind::kInput, "<image> in a system text", check_marks(marked));
}

TEST(RowImages, AreNamesOrObjectsWithAPath) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(parse(with("images", {{{"path", "a.png"}}, "b.png"})).images,
            (Names{"a.png", "b.png"}));
  EXPECT_EQ(parse(with("image", {{"path", "a.png"}, {"bytes", nullptr}})).images, Names{"a.png"});
  EXPECT_EQ(parse(with("images", {{{"url", "a.png"}, {"path", nullptr}}})).images, Names{"a.png"});
  expect_holds(refusal(with("images", {{{"bytes", "AAAA"}, {"path", "a.png"}}})),
               {"an image as bytes inside its row", "next: "});
  expect_holds(refusal(with("images", {{{"paht", "a.png"}}})), {"\"paht\"", "write \"path\""});
  Json part = Json::parse(
      R"({"messages":[{"role":"user","content":[{"type":"image","image":"a.png","max_pixels":9}]},)"
      R"({"role":"assistant","content":"A"}]})");
  expect_holds(refusal(part), {"\"max_pixels\""});
  EXPECT_EQ(counted(part), (std::set<std::string>{"part.\"max_pixels\""}));
  part["messages"][0]["content"][0] = {{"type", "image_url"},
                                       {"image_url", {{"url", "a.png"}, {"detail", "low"}}}};
  EXPECT_EQ(parse(part).images, Names{"a.png"});
}

}  // namespace
}  // namespace lft::row_keys_test
