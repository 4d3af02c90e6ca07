// A folder with everything a small run needs: a random LLaVA with a byte tokenizer, drawn images,
// rows, and a recipe over them.
#pragma once
#include <string>

#include "src/recipe/recipe.h"
#include "support/slurp.h"
#include "support/temp_dir.h"
#include "support/tiny_llava.h"

namespace lft::test {
using namespace lft::recipe;

/// Llama's tokenizer layout with bytes for pieces: 0 <unk>, 1 <s>, 2 </s>, 3..258 bytes, 259 the
/// word mark, 260 <image>.
inline nlohmann::json byte_tokenizer() {
  using nlohmann::json;
  json vocab = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}, {"\u2581", 259}};
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", byte);
    vocab[name] = 3 + byte;
  }
  const auto added = [](int id, const char* content) {
    return json{{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", true}};
  };
  const json sequence_a = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
             sequence_b = {{"Sequence", {{"id", "B"}, {"type_id", 1}}}};
  const json start = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens",
           {added(0, "<unk>"), added(1, "<s>"), added(2, "</s>"), added(260, "<image>")}},
          {"normalizer",
           {{"type", "Sequence"},
            {"normalizers",
             {{{"type", "Prepend"}, {"prepend", "\u2581"}},
              {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}}}}}},
          {"pre_tokenizer", nullptr},
          {"post_processor",
           {{"type", "TemplateProcessing"},
            {"single", {start, sequence_a}},
            {"pair", {start, sequence_a, sequence_b}},
            {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {1}}, {"tokens", {"<s>"}}}}}}}},
          {"decoder",
           {{"type", "Sequence"},
            {"decoders",
             {{{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}},
              {{"type", "ByteFallback"}},
              {{"type", "Fuse"}},
              {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", "<unk>"},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", true},
            {"byte_fallback", true},
            {"ignore_merges", false},
            {"vocab", vocab},
            {"merges", json::array()}}}};
}

/// A 24-bit BMP of one colour.
inline std::string bmp(int width, int height, unsigned char red, unsigned char green,
                       unsigned char blue) {
  const auto word = [](uint32_t value, int bytes) {
    std::string out;
    for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
    return out;
  };
  const uint32_t row = (static_cast<uint32_t>(width) * 3 + 3) / 4 * 4, pixels = row * height;
  std::string out = "BM" + word(54 + pixels, 4) + word(0, 4) + word(54, 4) + word(40, 4) +
                    word(width, 4) + word(height, 4) + word(1, 2) + word(24, 2) + word(0, 4) +
                    word(pixels, 4) + word(2835, 4) + word(2835, 4) + word(0, 4) + word(0, 4);
  for (int y = 0; y < height; ++y) {
    std::string line;
    for (int x = 0; x < width; ++x)
      line += {static_cast<char>(blue), static_cast<char>(green), static_cast<char>(red)};
    line.resize(row);
    out += line;
  }
  return out;
}

class TinyRun {
 public:
  explicit TinyRun(int rows = 12) {
    write_tiny_llava(model(), {.image_token = 260, .vocab = 264, .max_positions = 512});
    dir_.write("model/tokenizer.json", byte_tokenizer().dump());
    dir_.write("model/tokenizer_config.json",
               R"({"tokenizer_class":"LlamaTokenizer","bos_token":"<s>","eos_token":"</s>",)"
               R"("unk_token":"<unk>","add_bos_token":true})");
    const char* const names[] = {"red", "green", "blue"};
    nlohmann::json data = nlohmann::json::array();
    for (int i = 0; i < rows; ++i) {
      const int colour = i % 3;
      const std::string name = std::string(names[colour]) + std::to_string(i) + ".bmp";
      dir_.write("images/" + name, bmp(20 + i, 18, colour == 0 ? 200 + i : 9,
                                       colour == 1 ? 200 + i : 9, colour == 2 ? 200 + i : 9));
      data.push_back({{"id", "row" + std::to_string(i)},
                      {"image", name},
                      {"conversations",
                       {{{"from", "human"}, {"value", "<image>\nWhat?"}},
                        {{"from", "gpt"}, {"value", names[colour]}}}}});
    }
    dir_.write("rows.json", data.dump());
  }

  std::string model() const { return dir_.file("model"); }
  const TempDir& dir() const { return dir_; }

  /// A short FP32 run into `out` under the folder.
  Recipe recipe(const std::string& out) const {
    Recipe recipe;
    recipe.output_dir = dir_.file(out);
    recipe.model.path = model();
    recipe.lora.rank = 4;
    recipe.lora.alpha = 8;
    recipe.full = {"projector"};
    recipe.data.train = dir_.file("rows.json");
    recipe.data.eval = dir_.file("rows.json");
    recipe.data.image_root = dir_.file("images");
    recipe.data.chat_template = "llava-hf";
    recipe.data.image_fit = "pad";
    recipe.data.workers = 1;
    recipe.optim.lr = 1e-2;
    recipe.precision.compute = "fp32";
    recipe.train.batch_size = 4;
    recipe.train.max_steps = 6;
    recipe.log.answers = 1;  // each takes as long as a few steps
    return recipe;
  }

  /// Four steps of one row each that train the projector's adapters; with `without_images` the
  /// only image comes after the last of them.
  Recipe projector_recipe(const std::string& out, bool without_images) const {
    nlohmann::json rows = nlohmann::json::parse(slurp(dir_.file("rows.json")));
    for (size_t i = 0; without_images && i + 1 < rows.size(); ++i) {
      rows[i].erase("image");
      rows[i]["conversations"][0]["value"] = "What?";
    }
    dir_.write("rows.json", rows.dump());
    Recipe few = recipe(out);
    few.full.clear();
    few.lora.targets = {"llm:all-linear", "projector:all-linear"};
    few.data.shuffle = false;
    few.train.batch_size = 1;
    few.train.max_steps = 4;
    return few;
  }

 private:
  TempDir dir_;
};

}  // namespace lft::test
