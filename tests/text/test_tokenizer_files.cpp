// Wrong, contradictory or incomplete tokenizer files: each is a kInput error that names the
// position.
#include <functional>

#include "src/io/json.h"
#include "tests/text/text_test.h"

namespace lft::tokenizer_files_test {
using namespace lft::io;
using namespace lft::text;
namespace {

using test::load_failure;
using test::Scratch;

/// The error after `edit` changed tokenizer.json of a golden.
std::string failure_after(const std::function<void(Json&)>& edit,
                          const std::string& golden = "llama_legacy") {
  Scratch scratch(golden);
  Json json = read_json_file(scratch.path("tokenizer.json"));
  edit(json);
  test::write_bytes(scratch.path("tokenizer.json"), json.dump());
  return load_failure(scratch.path());
}

void expect_says(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(message.find(part), std::string::npos) << part << " is not in: " << message;
}

TEST(TokenizerFiles, NoTokenizer) {
  Scratch scratch;
  expect_says(load_failure(scratch.path()), {"no tokenizer", scratch.path()});
  expect_says(load_failure(scratch.path("missing")), {"no tokenizer"});
}

TEST(TokenizerFiles, InvalidJsonIsNotPassedOver) {
  for (const char* text : {"", "{", "[]", "{}", "null", "<html>", "{\"model\":{}} x", "\xFF\xFE"}) {
    Scratch scratch("llama_legacy_model");  // tokenizer.model exists, and does not help
    test::write_bytes(scratch.path("tokenizer.json"), text);
    expect_says(load_failure(scratch.path()), {"tokenizer.json"});
  }
}

TEST(TokenizerFiles, NotAFile) {
  Scratch scratch("llama_legacy");
  std::filesystem::remove(scratch.path("tokenizer.json"));
  std::filesystem::create_directory(scratch.path("tokenizer.json"));
  load_failure(scratch.path());
}

TEST(TokenizerFiles, UnknownComponentsAreNamed) {
  const auto set = [](const std::string& key, const Json& value) {
    return failure_after([&](Json& json) { json[key] = value; });
  };
  expect_says(set("normalizer", {{"type", "NFKC"}}), {"tokenizer.json: normalizer", "NFKC"});
  expect_says(set("normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "AAAA"}}),
              {"Precompiled"});
  expect_says(set("pre_tokenizer", {{"type", "BertPreTokenizer"}}),
              {"pre_tokenizer BertPreTokenizer"});
  expect_says(set("post_processor", {{"type", "BertProcessing"}}),
              {"post_processor BertProcessing"});
  expect_says(set("decoder", {{"type", "WordPiece"}}), {"decoder WordPiece"});
  expect_says(set("version", "2.0"), {"version 2.0"});
  expect_says(set("normalizer", {{"typ", "Prepend"}}), {"without a type"});
  expect_says(set("normalizer", 3), {"not an object"});
  expect_says(failure_after([](Json& json) { json["model"]["type"] = "WordPiece"; }),
              {"model WordPiece"});
  expect_says(failure_after([](Json& json) { json["model"]["type"] = "Unigram"; }),
              {"model Unigram"});
  expect_says(failure_after([](Json& json) { json["model"]["dropout"] = 0.1; }), {"dropout"});
  expect_says(failure_after([](Json& json) { json["model"]["end_of_word_suffix"] = "</w>"; }),
              {"end_of_word_suffix"});
}

TEST(TokenizerFiles, BadPatterns) {
  const auto split = [](const char* pattern) {
    return failure_after([&](Json& json) {
      json["pre_tokenizer"] = {{"type", "Split"},
                               {"pattern", {{"Regex", pattern}}},
                               {"behavior", "Isolated"},
                               {"invert", false}};
    });
  };
  for (const char* pattern : {"(", "", "[a&&b]", "\\h+", "[a[b]]", "\\C", "[^\\S]"})
    expect_says(split(pattern), {"pre_tokenizer"});
}

TEST(TokenizerFiles, APatternThatNeverEndsIsAnError) {
  Scratch scratch("llama_legacy");
  Json json = read_json_file(scratch.path("tokenizer.json"));
  json["pre_tokenizer"] = {{"type", "Split"},
                           {"pattern", {{"Regex", "(a+)+$"}}},
                           {"behavior", "Isolated"},
                           {"invert", false}};
  test::write_bytes(scratch.path("tokenizer.json"), json.dump());
  const auto tokenizer = Tokenizer::load(scratch.path());
  EXPECT_THROW(tokenizer->encode(std::string(60, 'a') + "b"), Error);
}

TEST(TokenizerFiles, Vocabulary) {
  const auto vocab = [](const std::string& token, const Json& id) {
    return failure_after([&](Json& json) { json["model"]["vocab"][token] = id; });
  };
  expect_says(vocab("the", 5), {"two tokens have one id", "5"});
  for (const Json& id :
       {Json(-1), Json(3.7), Json("7"), Json(nullptr), Json(uint64_t(1) << 40), Json(UINT64_MAX)}) {
    expect_says(vocab("new", id), {"token id", "new"});
  }
  expect_says(failure_after([](Json& json) { json["model"].erase("vocab"); }),
              {"vocabulary is missing"});
  expect_says(failure_after([](Json& json) { json["model"]["vocab"] = Json::array(); }),
              {"vocabulary is missing"});
  expect_says(failure_after([](Json& json) { json.erase("model"); }), {"no model"});
  expect_says(failure_after([](Json& json) { json["model"]["unk_token"] = "<nil>"; }),
              {"unknown token", "<nil>"});
}

TEST(TokenizerFiles, Merges) {
  const auto merges = [](const Json& merge) {
    return failure_after([&](Json& json) { json["model"]["merges"].push_back(merge); });
  };
  expect_says(merges("a zzz"), {"merge names a token", "zzz", "merges["});
  expect_says(merges(Json::array({"t", "Q"})), {"merge names a token"});
  for (const Json& merge : {Json("one"), Json("a b c"), Json(3), Json::array({"a"}),
                            Json::array({"a", 3}), Json(nullptr)}) {
    expect_says(merges(merge), {"not a pair"});
  }
  expect_says(failure_after([](Json& json) { json["model"].erase("merges"); }), {"merges"});
}

TEST(TokenizerFiles, AddedTokens) {
  const auto added = [](const std::function<void(Json&)>& edit) {
    return failure_after([&](Json& json) { edit(json["added_tokens"]); });
  };
  expect_says(added([](Json& list) { list[3]["id"] = 700; }),
              {"another id", "<image>: 700", "620"});
  expect_says(added([](Json& list) { list[3]["id"] = -1; }), {"id"});
  expect_says(added([](Json& list) { list.push_back(list[3]); }), {"comes twice", "<image>"});
  expect_says(added([](Json& list) { list[3].erase("content"); }), {"without content"});
  expect_says(added([](Json& list) { list[3]["lstrip"] = "yes"; }), {"lstrip", "truth value"});
  expect_says(added([](Json& list) { list[3]["content"] = std::string(5000, 'x'); }), {"too long"});
  expect_says(added([](Json& list) { list = 3; }), {"added_tokens"});
}

TEST(TokenizerFiles, Template) {
  const auto single = [](const std::function<void(Json&)>& edit) {
    return failure_after([&](Json& json) { edit(json["post_processor"]); });
  };
  expect_says(single([](Json& post) { post["special_tokens"]["<s>"]["ids"] = {9999}; }),
              {"no token has", "9999"});
  expect_says(single([](Json& post) { post["special_tokens"].erase("<s>"); }),
              {"does not define", "<s>"});
  expect_says(single([](Json& post) { post["single"].erase(1); }), {"leaves out the text"});
  expect_says(single([](Json& post) { post["single"][1]["Sequence"]["id"] = "B"; }), {"template"});
  expect_says(single([](Json& post) { post["single"] = "x"; }), {"single"});
}

TEST(TokenizerFiles, MetaspaceThatContradictsItself) {
  const auto metaspace = [](const Json& value) {
    return failure_after([&](Json& json) { json["pre_tokenizer"] = value; });
  };
  expect_says(metaspace({{"type", "Metaspace"}, {"replacement", "ab"}}), {"one character"});
  expect_says(
      metaspace({{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "sometimes"}}),
      {"sometimes"});
  expect_says(metaspace({{"type", "Metaspace"},
                         {"replacement", "_"},
                         {"add_prefix_space", false},
                         {"prepend_scheme", "first"}}),
              {"does not match"});
}

TEST(TokenizerFiles, Configuration) {
  const auto config = [](const std::string& text) {
    Scratch scratch("llama_legacy");
    test::write_bytes(scratch.path("tokenizer_config.json"), text);
    return load_failure(scratch.path());
  };
  expect_says(config("{"), {"tokenizer_config.json"});
  expect_says(config("[]"), {"tokenizer_config.json", "not an object"});
  expect_says(config(R"({"split_special_tokens": true})"), {"split_special_tokens"});
  expect_says(config(R"({"added_tokens_decoder": []})"), {"added_tokens_decoder"});
  expect_says(config(R"({"added_tokens_decoder": {"x": {"content": "<a>"}}})"), {"token id"});
  expect_says(config(R"({"added_tokens_decoder": {"900": {"content": "<a>"}}})"),
              {"another id", "900"});
  expect_says(config(R"({"added_tokens_decoder": {"622": "<a>"}})"), {"without content"});
  expect_says(config(R"({"bos_token": 3})"), {"without content"});
}

/// Only tokenizer.json determines the ids of a text, as in transformers: an adjacent
/// tokenizer.model is not read.
TEST(TokenizerFiles, AModelNextToTheJsonIsNotRead) {
  const std::string text = "USER: <image>\n  the   cat \xF0\x9F\x98\x80</s> caf\xC3\xA9";
  const auto reverse_merges = [](Json& json) {
    auto& merges = json["model"]["merges"];
    std::reverse(merges.begin(), merges.end());
  };
  const std::string other =
      test::read_bytes(test::golden_dir("metaspace_never_model/tokenizer.model"));
  const std::string own = test::read_bytes(test::golden_dir("llama_legacy_model/tokenizer.model"));
  for (const std::function<void(Json&)>& change :
       {std::function<void(Json&)>([](Json&) {}), std::function<void(Json&)>(reverse_merges)}) {
    Scratch scratch("llama_legacy_model");
    Json json = read_json_file(scratch.path("tokenizer.json"));
    change(json);
    test::write_bytes(scratch.path("tokenizer.json"), json.dump());
    std::vector<std::vector<int64_t>> ids;
    for (const std::string& model : {own, other, std::string("<html></html>"), std::string()}) {
      test::write_bytes(scratch.path("tokenizer.model"), model);
      ids.push_back(test::ids_of(Tokenizer::load(scratch.path())->encode(text)));
    }
    std::filesystem::remove(scratch.path("tokenizer.model"));
    const auto tokenizer = Tokenizer::load(scratch.path());
    for (const auto& each : ids) EXPECT_EQ(each, test::ids_of(tokenizer->encode(text)));
    EXPECT_FALSE(tokenizer->file_parts().contains("tokenizer.model"));
  }
}

}  // namespace
}  // namespace lft::tokenizer_files_test
