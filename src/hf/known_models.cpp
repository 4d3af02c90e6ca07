#include "src/hf/known_models.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

namespace lft::hf {
namespace {

/// Sizes of a decoder; `head_dim` 0: hidden / heads.
struct Decoder {
  int64_t hidden, intermediate, layers, heads, kv_heads, vocab, positions, head_dim = 0;
  bool tied = false;
};

io::Json decoder_json(const char* type, const Decoder& decoder) {
  io::Json json = {{"model_type", type},
                   {"vocab_size", decoder.vocab},
                   {"hidden_size", decoder.hidden},
                   {"intermediate_size", decoder.intermediate},
                   {"num_hidden_layers", decoder.layers},
                   {"num_attention_heads", decoder.heads},
                   {"num_key_value_heads", decoder.kv_heads},
                   {"max_position_embeddings", decoder.positions},
                   {"rms_norm_eps", 1e-5},
                   {"tie_word_embeddings", decoder.tied}};
  if (decoder.head_dim > 0) json["head_dim"] = decoder.head_dim;
  return json;
}

io::Json tower_json(const char* type, int64_t hidden, int64_t intermediate, int64_t layers,
                    int64_t heads, int64_t image, int64_t patch) {
  return {{"model_type", type},           {"hidden_size", hidden},
          {"num_hidden_layers", layers},  {"intermediate_size", intermediate},
          {"num_attention_heads", heads}, {"image_size", image},
          {"patch_size", patch}};
}

/// SigLIP-400M without its pooling head.
io::Json siglip(int64_t layers, int64_t image) {
  io::Json json = tower_json("siglip_vision_model", 1152, 4304, layers, 16, image, 14);
  json["vision_use_head"] = false;
  return json;
}

io::Json clip() { return tower_json("clip_vision_model", 1024, 4096, 24, 16, 336, 14); }

io::Json llava(const char* type, const char* text_type, const Decoder& decoder,
               int64_t image_token = 32000) {
  return {{"model_type", type},
          {"torch_dtype", "float16"},
          {"image_token_index", image_token},
          {"text_config", decoder_json(text_type, decoder)},
          {"vision_config", clip()}};
}

io::Json one_vision(const Decoder& decoder) {
  io::Json json = {{"model_type", "llava_onevision"},
                   {"torch_dtype", "float16"},
                   {"image_token_index", 151646},
                   {"text_config", decoder_json("qwen2", decoder)},
                   {"vision_config", siglip(26, 384)}};
  json["tie_word_embeddings"] = decoder.tied;
  return json;
}

/// A config as published, whose decoder is at the top level.
io::Json qwen2_vl(const Decoder& decoder) {
  io::Json json = decoder_json("qwen2_vl", decoder);
  json["torch_dtype"] = "bfloat16";
  json["rope_scaling"] = {{"type", "mrope"}, {"mrope_section", {16, 24, 24}}};
  json["vision_config"] = {{"hidden_size", decoder.hidden}};
  return json;
}

io::Json qwen2_5_vl(const Decoder& decoder, int64_t tower_intermediate) {
  io::Json text = decoder_json("qwen2_5_vl_text", decoder);
  text["rope_scaling"] = {{"type", "mrope"}, {"mrope_section", {16, 24, 24}}};
  return {{"model_type", "qwen2_5_vl"},
          {"torch_dtype", "bfloat16"},
          {"tie_word_embeddings", decoder.tied},
          {"text_config", text},
          {"vision_config",
           {{"depth", 32},
            {"hidden_size", 1280},
            {"intermediate_size", tower_intermediate},
            {"num_heads", 16},
            {"out_hidden_size", decoder.hidden},
            {"fullatt_block_indexes", {7, 15, 23, 31}}}}};
}

io::Json qwen3_vl(const Decoder& decoder, bool small_tower) {
  const int64_t depth = small_tower ? 24 : 27, hidden = small_tower ? 1024 : 1152;
  io::Json tower = {{"depth", depth},
                    {"hidden_size", hidden},
                    {"intermediate_size", small_tower ? 4096 : 4304},
                    {"num_heads", 16},
                    {"out_hidden_size", decoder.hidden}};
  tower["deepstack_visual_indexes"] = small_tower ? io::Json{5, 11, 17} : io::Json{8, 16, 24};
  return {{"model_type", "qwen3_vl"},
          {"torch_dtype", "bfloat16"},
          {"tie_word_embeddings", decoder.tied},
          {"text_config", decoder_json("qwen3_vl_text", decoder)},
          {"vision_config", tower}};
}

/// `depth` and `width` of the tower: 12 x 768, 24 x 1024 or 27 x 1152.
io::Json qwen3_5(const Decoder& decoder, int64_t value_heads, int64_t depth, int64_t width) {
  io::Json text = decoder_json("qwen3_5_text", decoder);
  text["linear_num_value_heads"] = value_heads;
  return {{"model_type", "qwen3_5"},
          {"torch_dtype", "bfloat16"},
          {"tie_word_embeddings", decoder.tied},
          {"text_config", text},
          {"vision_config",
           {{"depth", depth},
            {"hidden_size", width},
            {"intermediate_size", width == 1152 ? 4304 : 4 * width},
            {"num_heads", width == 768 ? 12 : 16},
            {"out_hidden_size", decoder.hidden}}}};
}

/// Sizes of the experts of every layer; `shared`: of the one that computes every token, 0 for none.
struct Experts {
  int64_t count, per_token, intermediate, shared = 0;
};

/// The config of a qwen3_vl or qwen3_5 as that of the same model with experts.
io::Json with_experts(io::Json config, const Experts& experts) {
  const std::string type = config["model_type"].get<std::string>() + "_moe";
  config["model_type"] = type;
  io::Json& text = config["text_config"];
  text["model_type"] = type + "_text";
  text["num_experts"] = experts.count;
  text["num_experts_per_tok"] = experts.per_token;
  text["moe_intermediate_size"] = experts.intermediate;
  if (experts.shared > 0) text["shared_expert_intermediate_size"] = experts.shared;
  return config;
}

/// `type`: idefics3 or smolvlm, which is also that of the tower.
io::Json smolvlm(const std::string& type, const Decoder& decoder, io::Json tower,
                 int64_t image_token, int64_t scale) {
  tower["model_type"] = type + "_vision";
  return {{"model_type", type},
          {"torch_dtype", "bfloat16"},
          {"image_token_id", image_token},
          {"scale_factor", scale},
          {"text_config", decoder_json("llama", decoder)},
          {"vision_config", tower}};
}

io::Json gemma3(const Decoder& decoder) {
  io::Json text = decoder_json("gemma3_text", decoder);
  text["sliding_window"] = 1024;
  return {{"model_type", "gemma3"},
          {"torch_dtype", "bfloat16"},
          {"text_config", text},
          {"vision_config", siglip(27, 896)}};
}

io::Json small_tower() { return tower_json("", 768, 3072, 12, 12, 512, 16); }
io::Json large_tower(int64_t image) { return tower_json("", 1152, 4304, 27, 16, image, 14); }

/// A config in the original layout; the tower is InternViT-300M or, if `large`, InternViT-6B.
io::Json internvl(const char* text_type, const Decoder& decoder, bool large = false) {
  io::Json text = decoder_json(text_type, decoder);
  text["rope_theta"] = 1e6;
  io::Json tower = large ? tower_json("intern_vit_6b", 3200, 12800, 45, 25, 448, 14)
                         : tower_json("intern_vit_6b", 1024, 4096, 24, 16, 448, 14);
  tower["norm_type"] = large ? "rms_norm" : "layer_norm";
  tower["qk_normalization"] = large;
  tower["qkv_bias"] = !large;
  return {{"model_type", "internvl_chat"},
          {"torch_dtype", "bfloat16"},
          {"ps_version", "v2"},
          {"dynamic_image_size", true},
          {"use_thumbnail", true},
          {"max_dynamic_patch", 12},
          {"llm_config", text},
          {"vision_config", tower}};
}

/// The same in the layout of transformers.
io::Json converted_internvl(const io::Json& original) {
  io::Json tower = original["vision_config"];
  tower["model_type"] = "internvl_vision";
  tower["use_qk_norm"] = tower["qk_normalization"];
  tower["attention_bias"] = tower["qkv_bias"];
  tower.erase("qk_normalization");
  tower.erase("qkv_bias");
  return {{"model_type", "internvl"},
          {"torch_dtype", original["torch_dtype"]},
          {"tie_word_embeddings", original["llm_config"]["tie_word_embeddings"]},
          {"text_config", original["llm_config"]},
          {"vision_config", tower}};
}

struct Size {
  std::string name;
  io::Json config;
};
struct Known {
  std::string family;
  std::vector<std::string> names;  // as in KnownSeries
  std::vector<Size> sizes;
};

constexpr int64_t k4 = 4096, k8 = 8192, k16 = 16384, k32 = 32768, k40 = 40960, k128 = 131072,
                  k256 = 262144;

std::vector<Known> llava_models() {
  return {
      {"LLaVA-1.5",
       {"llava-hf/llava-1.5-*-hf"},
       {{"7b", llava("llava", "llama", {4096, 11008, 32, 32, 32, 32064, k4})},
        {"13b", llava("llava", "llama", {5120, 13824, 40, 40, 40, 32064, k4})}}},
      {"LLaVA-NeXT",
       {"llava-hf/llava-v1.6-*-hf"},
       {{"vicuna-7b", llava("llava_next", "llama", {4096, 11008, 32, 32, 32, 32064, k4})},
        {"mistral-7b", llava("llava_next", "mistral", {4096, 14336, 32, 32, 8, 32064, k32})},
        {"vicuna-13b", llava("llava_next", "llama", {5120, 13824, 40, 40, 40, 32064, k4})},
        {"34b", llava("llava_next", "llama", {7168, 20480, 60, 56, 8, 64064, k4}, 64000)}}},
      {"LLaVA-NeXT",
       {"llava-hf/llama3-llava-next-*-hf"},
       {{"8b", llava("llava_next", "llama", {4096, 14336, 32, 32, 8, 128320, k8}, 128256)}}},
      {"LLaVA-OneVision",
       {"llava-hf/llava-onevision-qwen2-*-ov-hf", "llava-hf/llava-onevision-qwen2-*-si-hf"},
       {{"0.5b", one_vision({896, 4864, 24, 14, 2, 152000, k32, 0, true})},
        {"7b", one_vision({3584, 18944, 28, 28, 4, 152128, k32})},
        {"72b", one_vision({8192, 29568, 80, 64, 8, 152128, k32})}}},
  };
}

std::vector<Known> smolvlm_models() {
  const Decoder llama_135m = {576, 1536, 30, 9, 3, 49280, k8},
                llama_360m = {960, 2560, 32, 15, 5, 49280, k8};
  return {
      {"SmolVLM",
       {"HuggingFaceTB/SmolVLM-*"},
       {{"256M-Instruct", smolvlm("idefics3", llama_135m, small_tower(), 49190, 4)},
        {"500M-Instruct", smolvlm("idefics3", llama_360m, small_tower(), 49190, 4)},
        {"Instruct",
         smolvlm("idefics3", {2048, 8192, 24, 32, 32, 49155, k16}, large_tower(384), 49153, 3)}}},
      {"SmolVLM2",
       {"HuggingFaceTB/SmolVLM2-*-Instruct"},
       {{"256M-Video", smolvlm("smolvlm", llama_135m, small_tower(), 49190, 4)},
        {"500M-Video", smolvlm("smolvlm", llama_360m, small_tower(), 49190, 4)},
        {"2.2B",
         smolvlm("smolvlm", {2048, 8192, 24, 32, 32, 49280, k8}, large_tower(384), 49190, 3)}}},
      {"Idefics3",
       {"HuggingFaceM4/Idefics3-*-Llama3"},
       {{"8B", smolvlm("idefics3", {4096, 14336, 32, 32, 8, 128259, k128}, large_tower(364), 128257,
                       2)}}},
  };
}

std::vector<Known> qwen_vl_models() {
  const io::Json dense_27b = qwen3_5({5120, 17408, 64, 24, 4, 248320, k256, 256}, 48, 27, 1152);
  const io::Json sparse_35b = with_experts(
      qwen3_5({2048, 512, 40, 16, 2, 248320, k256, 256}, 32, 27, 1152), {256, 8, 512, 512});
  return {
      {"Qwen3.5",
       {"Qwen/Qwen3.5-*"},
       {{"0.8B", qwen3_5({1024, 3584, 24, 8, 2, 248320, k256, 256, true}, 16, 12, 768)},
        {"2B", qwen3_5({2048, 6144, 24, 8, 2, 248320, k256, 256, true}, 16, 24, 1024)},
        {"4B", qwen3_5({2560, 9216, 32, 16, 4, 248320, k256, 256, true}, 32, 24, 1024)},
        {"9B", qwen3_5({4096, 12288, 32, 16, 4, 248320, k256, 256}, 32, 27, 1152)},
        {"27B", dense_27b}}},
      {"Qwen3.5", {"Qwen/Qwen3.6-*"}, {{"27B", dense_27b}}},
      {"Qwen3.5-MoE",
       {"Qwen/Qwen3.5-*"},
       {{"35B-A3B", sparse_35b},
        {"397B-A17B",
         with_experts(qwen3_5({4096, 1024, 60, 32, 2, 248320, k256, 256}, 64, 27, 1152),
                      {512, 10, 1024, 1024})}}},
      {"Qwen3.5-MoE", {"Qwen/Qwen3.6-*"}, {{"35B-A3B", sparse_35b}}},
      {"Qwen3-VL",
       {"Qwen/Qwen3-VL-*-Instruct", "Qwen/Qwen3-VL-*-Thinking"},
       {{"2B", qwen3_vl({2048, 6144, 28, 16, 8, 151936, k256, 128, true}, true)},
        {"4B", qwen3_vl({2560, 9728, 36, 32, 8, 151936, k256, 128, true}, true)},
        {"8B", qwen3_vl({4096, 12288, 36, 32, 8, 151936, k256, 128}, false)},
        {"32B", qwen3_vl({5120, 25600, 64, 64, 8, 151936, k256, 128}, false)}}},
      {"Qwen3-VL-MoE",
       {"Qwen/Qwen3-VL-*-Instruct", "Qwen/Qwen3-VL-*-Thinking"},
       {{"30B-A3B",
         with_experts(qwen3_vl({2048, 6144, 48, 32, 4, 151936, k256, 128}, false), {128, 8, 768})},
        {"235B-A22B", with_experts(qwen3_vl({4096, 12288, 94, 64, 4, 151936, k256, 128}, false),
                                   {128, 8, 1536})}}},
      {"Qwen2.5-VL",
       {"Qwen/Qwen2.5-VL-*-Instruct"},
       {{"3B", qwen2_5_vl({2048, 11008, 36, 16, 2, 151936, 128000, 0, true}, 3420)},
        {"7B", qwen2_5_vl({3584, 18944, 28, 28, 4, 152064, 128000}, 3420)},
        {"32B", qwen2_5_vl({5120, 27648, 64, 40, 8, 152064, 128000}, 3456)},
        {"72B", qwen2_5_vl({8192, 29568, 80, 64, 8, 152064, 128000}, 3456)}}},
      {"Qwen2-VL",
       {"Qwen/Qwen2-VL-*-Instruct"},
       {{"2B", qwen2_vl({1536, 8960, 28, 12, 2, 151936, k32, 0, true})},
        {"7B", qwen2_vl({3584, 18944, 28, 28, 4, 152064, k32})},
        {"72B", qwen2_vl({8192, 29568, 80, 64, 8, 152064, k32})}}},
  };
}

std::vector<Known> internvl_and_gemma_models() {
  return {
      {"InternVL3",
       {"OpenGVLab/InternVL3-*", "OpenGVLab/InternVL3-*-hf"},
       {{"1B", internvl("qwen2", {896, 4864, 24, 14, 2, 151674, k32})},
        {"2B", internvl("qwen2", {1536, 8960, 28, 12, 2, 151674, k32})},
        {"8B", internvl("qwen2", {3584, 18944, 28, 28, 4, 151674, k32})},
        {"14B", internvl("qwen2", {5120, 13824, 48, 40, 8, 151674, k32})},
        {"38B", internvl("qwen2", {5120, 27648, 64, 40, 8, 151674, k32}, true)},
        {"78B", internvl("qwen2", {8192, 29568, 80, 64, 8, 151674, k32}, true)}}},
      {"InternVL3.5",
       {"OpenGVLab/InternVL3_5-*", "OpenGVLab/InternVL3_5-*-HF"},
       {{"1B", internvl("qwen3", {1024, 3072, 28, 16, 8, 151936, k40, 128})},
        {"2B", internvl("qwen3", {2048, 6144, 28, 16, 8, 151936, k40, 128})},
        {"4B", internvl("qwen3", {2560, 9728, 36, 32, 8, 151936, k40, 128})},
        {"8B", internvl("qwen3", {4096, 12288, 36, 32, 8, 151936, k40, 128})},
        {"14B", internvl("qwen3", {5120, 17408, 40, 40, 8, 151936, k40, 128})},
        {"38B", internvl("qwen3", {5120, 25600, 64, 64, 8, 151936, k40, 128}, true)}}},
      {"Gemma 3",
       {"google/gemma-3-*-it", "google/gemma-3-*-pt"},
       {{"4b", gemma3({2560, 10240, 34, 8, 4, 262208, k128, 256, true})},
        {"12b", gemma3({3840, 15360, 48, 16, 8, 262208, k128, 256, true})},
        {"27b", gemma3({5376, 21504, 62, 32, 16, 262208, k128, 128, true})}}},
  };
}

const std::vector<Known>& all_known() {
  static const std::vector<Known> known = [] {
    std::vector<Known> all;
    for (std::vector<Known> (*part)() :
         {smolvlm_models, qwen_vl_models, internvl_and_gemma_models, llava_models})
      std::ranges::move(part(), std::back_inserter(all));
    return all;
  }();
  return known;
}

std::string last_component(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

std::string name_of(const std::string& form, const std::string& size) {
  return std::string(form).replace(form.find('*'), 1, size);
}

/// The family and the config.json of the checkpoint that `path` names; of none: empty.
std::pair<std::string, io::Json> find(const std::string& path) {
  const std::string wanted = last_component(path);
  for (const Known& known : all_known()) {
    for (const std::string& form : known.names) {
      for (const Size& size : known.sizes) {
        if (last_component(name_of(form, size.name)) != wanted) continue;
        const bool converted = known.family.starts_with("InternVL") && !form.ends_with('*');
        return {known.family, converted ? converted_internvl(size.config) : size.config};
      }
    }
  }
  return {};
}

}  // namespace

std::vector<KnownSeries> known_series() {
  std::vector<KnownSeries> all;
  for (const Known& known : all_known()) {
    all.push_back({known.family, known.names, {}});
    for (const Size& size : known.sizes) all.back().sizes.push_back(size.name);
  }
  return all;
}

std::vector<std::string> known_models() {
  std::vector<std::string> names;
  for (const Known& known : all_known())
    for (const std::string& form : known.names)
      for (const Size& size : known.sizes) names.push_back(name_of(form, size.name));
  return names;
}

std::string known_family(const std::string& path) { return find(path).first; }

io::Json known_config(const std::string& path) { return find(path).second; }

}  // namespace lft::hf
