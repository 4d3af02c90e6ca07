// What a LLaVA config.json says, with transformers' defaults where it is silent (old and new spellings). Plain data.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace lft {

struct RopeScaling {
  std::string type = "default";  // default, linear, llama3
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4;
  int64_t original_max_positions = 8192;
};

struct LlamaConfig {
  int64_t hidden = 4096, intermediate = 11008, layers = 32, heads = 32, kv_heads = 32, head_dim = 128, vocab = 32000, max_positions = 2048;
  double rms_norm_eps = 1e-6, rope_theta = 10000;
  RopeScaling rope_scaling;
  bool attention_bias = false, mlp_bias = false, tie_embeddings = false;
};

struct ClipConfig {
  int64_t hidden = 768, intermediate = 3072, layers = 12, heads = 12, image_size = 224, patch_size = 32, channels = 3;
  double layer_norm_eps = 1e-5;
  std::string activation = "quick_gelu";
  int64_t grid() const { return image_size / patch_size; }
};

struct LlavaConfig {
  LlamaConfig text;
  ClipConfig vision;
  int64_t image_token = 32000, pad_token = -1, bos_token = 1;
  std::vector<int64_t> eos_tokens = {2};
  std::vector<int64_t> vision_feature_layers = {-2};  // several: concatenated on the channel
  bool select_full = false;                           // strategy full keeps the CLS position
  bool projector_bias = true;
  std::string projector_activation = "gelu";
  std::string stored_dtype = "float32";  // dtype / torch_dtype of config.json
  int64_t image_positions() const { return vision.grid() * vision.grid() + (select_full ? 1 : 0); }

  /// Throws kInput naming the field for anything out of range (hidden 0, negative, heads that do not divide, 2^31, rope 0, ...), an
  /// unsupported model_type, activation or rope type. `where` is the file's path for the message.
  static LlavaConfig parse(const nlohmann::json& config, const std::string& where);
};

}  // namespace lft
