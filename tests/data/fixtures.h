// Shared helpers of the data tests: a tokenizer of single bytes, a small config, files to read.
#pragma once
#include <string>
#include <vector>

#include "src/data/dataset.h"
#include "src/data/encode_options.h"
#include "src/io/json.h"
#include "src/text/chat/named_form.h"
#include "support/llava.h"
#include "support/temp_dir.h"

namespace lft::test {
using namespace lft::data;
using namespace lft::io;
using namespace lft::family;
using namespace lft::llava;
using namespace lft::text;

constexpr int64_t kBos = 1, kEos = 2, kImage = 300, kFirstByte = 3;

/// One token per byte (id 3 + byte), "<image>" and "</s>" special, BOS first.
class ByteTokenizer : public Tokenizer {
 public:
  std::vector<Token> encode(std::string_view text) const override {
    std::vector<Token> tokens = {{kBos, 0, 0}};
    for (uint32_t at = 0; at < text.size();) {
      const bool image = text.substr(at, 7) == "<image>", end = text.substr(at, 4) == "</s>";
      const uint32_t length = image ? 7 : end ? 4 : 1;
      const int64_t id = image ? image_id
                         : end ? kEos
                               : kFirstByte + static_cast<unsigned char>(text[at]);
      tokens.push_back({id, at, at + length});
      at += length;
    }
    return tokens;
  }
  std::string decode(const std::vector<int64_t>& ids, bool) const override {
    std::string text;
    for (const int64_t id : ids) text += token_of(id);
    return text;
  }
  int64_t vocab_size() const override { return kImage + 1; }
  int64_t id_of(const std::string& token) const override {
    if (token == "<image>") return image_id;
    if (token == "</s>") return kEos;
    return token.size() == 1 ? kFirstByte + static_cast<unsigned char>(token[0]) : -1;
  }
  std::string token_of(int64_t id) const override {
    if (id == kBos) return "<s>";
    if (id == kEos) return "</s>";
    if (id == image_id) return "<image>";
    return std::string(1, static_cast<char>(id - kFirstByte));
  }
  int64_t image_id = kImage;
};

/// 8x8 images in 4x4 patches: 4 positions per image.
inline family::ModelConfig small_config(int64_t size = 8, int64_t patch = 4) {
  family::ModelConfig config = llava::parse_llava({{"model_type", "llava"}}, "small");
  const auto own = std::make_shared<llava::LlavaFields>(llava::fields(config));
  own->vision.image_size = size;
  own->vision.patch_size = patch;
  config.own = own;
  config.image_token = kImage;
  config.text.vocab = kImage + 1;
  config.text.max_positions = 512;
  return config;
}

inline EncodeOptions small_options() {
  EncodeOptions options;
  options.config = small_config();
  options.chat = text::named_form("llava-hf", "</s>", "<image>");
  options.max_tokens = 256;
  options.images = squares(options.config);
  options.tokenizer_fingerprint = "bytes";
  return options;
}

inline void put_number(std::string& bytes, uint32_t value, int count) {
  for (int i = 0; i < count; ++i) bytes += static_cast<char>(value >> (8 * i));
}

/// A 24-bit BMP file: rows from the bottom, BGR, padded to 4 bytes.
inline std::string bmp(uint32_t width, uint32_t height, uint8_t seed) {
  const uint32_t stride = (3 * width + 3) / 4 * 4;
  std::string bytes = "BM";
  for (const uint32_t value : {54 + stride * height, 0u, 54u, 40u, width, height})
    put_number(bytes, value, 4);
  put_number(bytes, 1, 2);
  put_number(bytes, 24, 2);
  for (const uint32_t value : {0u, stride * height, 2835u, 2835u, 0u, 0u})
    put_number(bytes, value, 4);
  for (uint32_t y = 0; y < height; ++y) {
    for (uint32_t x = 0; x < stride; ++x)
      bytes += x < 3 * width ? static_cast<char>(seed + 7 * x + 31 * y) : '\0';
  }
  return bytes;
}

/// One LLaVA row as JSON.
inline std::string llava_row(const std::string& id, const std::string& image,
                             const std::string& question, const std::string& answer) {
  Json row = {{"id", id},
              {"conversations",
               {{{"from", "human"}, {"value", question}}, {{"from", "gpt"}, {"value", answer}}}}};
  if (!image.empty()) row["image"] = image;
  return row.dump();
}

}  // namespace lft::test
