// Damaged SentencePiece models: the library may crash on them, the program must not.
#include <cstring>
#include <random>

#include "src/text/sentencepiece_model.h"
#include "tests/text/text_test.h"

namespace lft::sentencepiece_test {
using namespace lft::text;
namespace {

using test::golden_dir;
using test::load_failure;
using test::Scratch;

TEST(SentencePiece, FilesThatAreNoModel) {
  const std::string whole = test::read_bytes(golden_dir("model_only/tokenizer.model"));
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 499723\n";
  for (const std::string& bytes :
       {std::string(), std::string("<html></html>"), pointer, whole.substr(0, 1),
        whole.substr(0, whole.size() / 2 + 3), std::string(100, '\0')}) {
    Scratch scratch("model_only");
    test::write_bytes(scratch.path("tokenizer.model"), bytes);
    EXPECT_NE(load_failure(scratch.path()).find("tokenizer.model"), std::string::npos);
  }
}

/// A protobuf field of type bytes or message.
std::string field(int number, const std::string& value) {
  std::string out(1, char(number << 3 | 2));
  for (size_t size = value.size();; size >>= 7) {
    out += char((size & 0x7F) | (size > 0x7F ? 0x80 : 0));
    if (size <= 0x7F) break;
  }
  return out + value;
}

/// The first four bytes are the size of an array of offsets; offsets that point far outside crash
/// the library, at once or with a text that reaches them.
TEST(SentencePiece, CharacterMapsThatLeadOutOfThemselves) {
  const std::string whole = test::read_bytes(golden_dir("model_only/tokenizer.model"));
  for (const char offset : {'\xFF', '\x7F'}) {
    Scratch scratch("model_only");
    const std::string map = std::string("\0\x04\0\0", 4) + std::string(1024, offset) + "x";
    test::write_bytes(scratch.path("tokenizer.model"), whole + field(3, field(2, map)));
    EXPECT_NE(load_failure(scratch.path()).find("normalisation rules are damaged"),
              std::string::npos);
  }
  // The entry after byte 0xD0 of a text points far outside; nothing else in the trie does.
  std::string units(4 * 512, '\0');
  const uint32_t root = 256u << 10, far = 0x1FFFFFu << 10 | 0xD0;
  std::memcpy(units.data(), &root, sizeof root);
  std::memcpy(units.data() + 4 * (256 ^ 0xD0), &far, sizeof far);
  Scratch scratch("model_only");
  const std::string map = std::string("\0\x08\0\0", 4) + units + std::string(2, '\0');
  test::write_bytes(scratch.path("tokenizer.model"), whole + field(3, field(2, map)));
  EXPECT_NE(load_failure(scratch.path()).find("a unit beyond the end of the trie"),
            std::string::npos);
}

TEST(SentencePiece, AHugePieceIsRefused) {
  Scratch scratch("model_only");
  const std::string whole = test::read_bytes(golden_dir("model_only/tokenizer.model"));
  test::write_bytes(scratch.path("tokenizer.model"),
                    whole + field(1, field(1, std::string(1 << 20, 'a'))));
  EXPECT_NE(load_failure(scratch.path()).find("tokenizer.model"), std::string::npos);
}

TEST(SentencePiece, FlippedBitsNeverBringTheProgramDown) {
  std::mt19937 rng(17);
  for (const char* golden : {"model_only", "model_only_not_legacy", "model_only_unigram"}) {
    Scratch scratch(golden);
    const std::string whole = test::read_bytes(scratch.path("tokenizer.model"));
    for (int round = 0; round < 40; ++round) {
      std::string damaged = whole;
      for (uint32_t flips = 1 + rng() % 4; flips > 0; --flips)
        damaged[rng() % damaged.size()] ^= char(1 << rng() % 8);
      test::write_bytes(scratch.path("tokenizer.model"), damaged);
      try {
        Tokenizer::load(scratch.path())->encode("USER: <image>\nthe cat \xF0\x9F\x98\x80</s>");
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kInput) << error.what();
      }
    }
  }
}

TEST(SentencePiece, TheTrialIsQuick) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 5; ++i)
    SentencePieceModel model(golden_dir("model_only/tokenizer.model"),
                             SentencePieceModel::Normalization::kOwn);
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 5.0);
}

}  // namespace
}  // namespace lft::sentencepiece_test
