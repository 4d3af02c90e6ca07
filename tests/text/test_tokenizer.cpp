// Ids and decoded texts against transformers (tests/goldens/tokenizers/ids.json), and guarantees
// about spans, size and hostile text.
#include <chrono>
#include <map>
#include <thread>

#include "src/io/json.h"
#include "src/text/tokenizer_parts.h"
#include "tests/text/text_test.h"

namespace lft::tokenizer_test {
using namespace lft::io;
using namespace lft::text;
namespace {

using test::golden_dir;
using test::ids_of;

const Json& goldens() {
  static const Json json = read_json_file(golden_dir("ids.json"));
  return json;
}

class Golden : public ::testing::TestWithParam<std::string> {};

TEST_P(Golden, IdsAreTransformers) {
  const auto tokenizer = Tokenizer::load(golden_dir(GetParam()));
  const Json& rows = goldens()["tokenizers"][GetParam()];
  const Json& texts = goldens()["texts"];
  ASSERT_EQ(rows.size(), texts.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(ids_of(tokenizer->encode(texts[i].get<std::string>())),
              rows[i]["ids"].get<std::vector<int64_t>>())
        << texts[i];
  }
}

TEST_P(Golden, DecodedTextIsTransformers) {
  if (GetParam().starts_with("model_only"))
    return;  // transformers 5 has no slow tokenizer to compare with
  const auto tokenizer = Tokenizer::load(golden_dir(GetParam()));
  const Json& rows = goldens()["tokenizers"][GetParam()];
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto text = goldens()["texts"][i].get<std::string>();
    const auto ids = rows[i]["ids"].get<std::vector<int64_t>>();
    EXPECT_EQ(tokenizer->decode(ids, true), rows[i].value("decoded", text));
    EXPECT_EQ(tokenizer->decode(ids, false), rows[i].value("decoded_all", text));
  }
}

/// The bytes of single tokens make up the text of all of them.
TEST_P(Golden, BytesOfTokensAreThoseOfTheText) {
  const auto tokenizer = Tokenizer::load(golden_dir(GetParam()));
  for (const Json& row : goldens()["texts"]) {
    std::vector<int64_t> ids;
    std::string bytes;
    for (const Token& token : tokenizer->encode(row.get<std::string>())) {
      if (tokenizer->is_special(token.id)) continue;
      ids.push_back(token.id);
      bytes += tokenizer->bytes_of(token.id, ids.size() == 1);
    }
    EXPECT_EQ(bytes, tokenizer->decode(ids)) << row;
  }
  EXPECT_EQ(tokenizer->bytes_of(tokenizer->vocab_size() + 7, false), "");
}

/// Spans are inside the text, never go backwards, and cover every byte.
TEST_P(Golden, SpansCoverTheText) {
  const bool drops_spaces =
      GetParam() == "model_only_unigram";  // that model's own normalisation does
  const auto tokenizer = Tokenizer::load(golden_dir(GetParam()));
  for (const Json& row : goldens()["texts"]) {
    const auto text = row.get<std::string>();
    uint32_t begin = 0, reached = 0;
    for (const Token& token : tokenizer->encode(text)) {
      EXPECT_LE(begin, token.begin) << row;
      EXPECT_LE(token.begin, token.end) << row;
      if (!drops_spaces) {
        EXPECT_LE(token.begin, reached) << "a gap in " << row;
      }
      begin = token.begin;
      reached = std::max(reached, token.end);
    }
    if (!drops_spaces) {
      EXPECT_EQ(reached, text.size()) << row;
    }
  }
}

std::vector<std::string> golden_names() {
  return {"llama_legacy",          "llama_legacy_model",
          "metaspace_always",      "metaspace_first_model",
          "metaspace_never_model", "metaspace_split",
          "unknown_bytes",         "byte_level_llama3",
          "byte_level_gpt2",       "model_only",
          "model_only_not_legacy", "model_only_unigram"};
}
INSTANTIATE_TEST_SUITE_P(Tokenizers, Golden, ::testing::ValuesIn(golden_names()),
                         [](const auto& info) { return info.param; });

TEST(Tokenizer, GoldensAreAllTested) {
  std::map<std::string, bool> tested;
  for (const std::string& name : golden_names()) tested[name] = true;
  for (const auto& [name, rows] : goldens()["tokenizers"].items())
    EXPECT_TRUE(tested[name]) << name;
}

TEST(Tokenizer, ATokenHoldsTheSpaceBeforeIt) {
  const auto tokenizer = Tokenizer::load(golden_dir("llama_legacy"));
  const std::string text = "the cat";
  const auto tokens = tokenizer->encode(text);
  ASSERT_EQ(tokens.size(), 3u);  // <s>, the prefix with "the", " cat"
  EXPECT_EQ(tokens[0].end, 0u);
  EXPECT_EQ(tokens[1].begin, 0u);
  EXPECT_EQ(tokens[1].end, 3u);
  EXPECT_EQ(tokens[2].begin, 3u);
  EXPECT_EQ(tokens[2].end, 7u);
}

TEST(Tokenizer, APrefixPutInBelongsToTheCharacterBehindIt) {  // like the offsets of the tokenizers
                                                              // library
  for (const char* name :
       {"llama_legacy", "llama_legacy_model", "metaspace_always", "model_only"}) {
    const auto tokenizer = Tokenizer::load(golden_dir(name));
    int found = 0;
    for (const Token& token : tokenizer->encode("a</s>\xF0\x9F\x98\x80")) {
      found +=
          tokenizer->token_of(token.id) == "\xE2\x96\x81" && token.begin == 5 && token.end == 9;
    }
    EXPECT_EQ(found, 1) << name;
  }
}

TEST(Tokenizer, ByteTokensShareTheirCharacter) {
  for (const char* name : {"llama_legacy", "llama_legacy_model", "byte_level_llama3"}) {
    const auto tokens = Tokenizer::load(golden_dir(name))->encode("a\xF0\x9F\x98\x80z");
    int shared = 0;
    for (const Token& token : tokens) shared += token.begin == 1 && token.end == 5;
    EXPECT_EQ(shared, 4) << name;
  }
}

TEST(Tokenizer, NamesSpecialTokens) {
  const auto llama = Tokenizer::load(golden_dir("llama_legacy"));
  EXPECT_EQ(llama->bos_token(), "<s>");
  EXPECT_EQ(llama->eos_token(), "</s>");
  EXPECT_EQ(llama->pad_token(), "<pad>");
  EXPECT_EQ(llama->id_of("</s>"), 2);
  EXPECT_EQ(llama->id_of("<image>"), 620);
  EXPECT_EQ(llama->vocab_size(), 622);
  EXPECT_EQ(llama->id_of("no such token"), -1);
  EXPECT_EQ(llama->token_of(2), "</s>");
  EXPECT_EQ(llama->token_of(622), "");
  EXPECT_EQ(llama->token_of(-1), "");
  EXPECT_EQ(Tokenizer::load(golden_dir("model_only"))->eos_token(), "</s>");
  EXPECT_EQ(Tokenizer::load(golden_dir("byte_level_llama3"))->eos_token(), "<|eot_id|>");
  EXPECT_EQ(Tokenizer::load(golden_dir("unknown_bytes"))->bos_token(), "<s>");
}

TEST(Tokenizer, DecodeLeavesOutIdsWithoutAToken) {
  const auto tokenizer = Tokenizer::load(golden_dir("llama_legacy"));
  const auto ids = ids_of(tokenizer->encode("a cat"));
  auto with = ids;
  with.insert(with.end(), {-1, 622, int64_t(1) << 40});
  EXPECT_EQ(tokenizer->decode(with), "a cat");
}

TEST(Tokenizer, InvalidUtf8IsReadAsTheReplacementCharacter) {
  const std::string broken =
      "a\xFF"
      "b\xE4\xBD"
      "c\xF0\x9F\x98";
  const std::string replaced =
      "a\xEF\xBF\xBD"
      "b\xEF\xBF\xBD"
      "c\xEF\xBF\xBD";  // as in Python's decode(errors="replace")
  for (const std::string& name : golden_names()) {
    const auto tokenizer = Tokenizer::load(golden_dir(name));
    const auto tokens = tokenizer->encode(broken);
    EXPECT_EQ(ids_of(tokens), ids_of(tokenizer->encode(replaced))) << name;
    EXPECT_EQ(tokens.back().end, broken.size()) << name;
  }
}

TEST(Tokenizer, FingerprintTellsTokenizersApart) {
  std::map<std::string, std::string> seen;
  for (const char* name :
       {"llama_legacy", "metaspace_always", "metaspace_first_model", "byte_level_llama3"}) {
    const auto fingerprint = [&] {
      return tokenizer_fingerprint(tokenizer_parts(*Tokenizer::load(golden_dir(name))));
    };
    const std::string print = fingerprint();
    EXPECT_EQ(print.size(), 64u);
    EXPECT_EQ(print, fingerprint());
    EXPECT_TRUE(seen.emplace(print, name).second) << name << " and " << seen[print];
  }
}

TEST(Tokenizer, TheModelFileBesideChangesNoId) {
  test::Scratch scratch("llama_legacy_model");
  const auto with = Tokenizer::load(scratch.path());
  std::filesystem::remove(scratch.path("tokenizer.model"));
  const auto without = Tokenizer::load(scratch.path());
  for (const Json& text : goldens()["texts"]) {
    const auto a = with->encode(text.get<std::string>()),
               b = without->encode(text.get<std::string>());
    ASSERT_EQ(ids_of(a), ids_of(b)) << text;
    for (size_t i = 0; i < a.size(); ++i)
      EXPECT_TRUE(a[i].begin == b[i].begin && a[i].end == b[i].end) << text << " token " << i;
  }
}

TEST(Tokenizer, ThreadsShareOne) {
  const auto tokenizer = Tokenizer::load(golden_dir("metaspace_first_model"));
  const std::string text = "USER: <image>\nHow many? ASSISTANT: two</s>";
  const auto want = ids_of(tokenizer->encode(text));
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (int& count : wrong) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) count += ids_of(tokenizer->encode(text)) != want;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

double seconds_for(const Tokenizer& tokenizer, const std::string& unit, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += unit;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(tokenizer.encode(text).back().end, text.size());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Eight times the text may take 8 x log factor, not 64 times; the bound allows a factor of three
/// for a busy machine.
TEST(Tokenizer, TimeGrowsWithTheTextAndNotItsSquare) {
  for (const char* name : {"llama_legacy", "llama_legacy_model", "byte_level_llama3"}) {
    const auto tokenizer = Tokenizer::load(golden_dir(name));
    for (const char* unit : {"the cat ", "a", " ", "<", "\n", "\xF0\x9F\x98\x80", "<image>"}) {
      const double small = seconds_for(*tokenizer, unit, 64 << 10),
                   large = seconds_for(*tokenizer, unit, 512 << 10);
      EXPECT_LT(large, 24 * small + 0.5) << name << " '" << unit << "'";
    }
  }
}

}  // namespace
}  // namespace lft::tokenizer_test
