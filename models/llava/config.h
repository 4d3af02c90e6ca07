// What a LLaVA config.json says, with transformers' defaults where it is silent (old and new
// spellings). Plain data.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "models/clip/config.h"
#include "models/llama/config.h"

namespace lft::llava {

struct LlavaConfig {
  llama::LlamaConfig text;
  clip::ClipConfig vision;
  int64_t image_token = 32000, pad_token = -1, bos_token = 1;
  std::vector<int64_t> eos_tokens = {2};
  std::vector<int64_t> vision_feature_layers = {-2};  // several: concatenated on the channel
  bool select_full = false;                           // strategy full keeps the CLS position
  bool projector_bias = true;
  std::string projector_activation = "gelu";
  std::string stored_dtype = "float32";  // dtype / torch_dtype of config.json
  int64_t image_positions() const { return vision.grid() * vision.grid() + (select_full ? 1 : 0); }

  /// Throws kInput naming the field for anything out of range (hidden 0, negative, heads that do
  /// not divide, 2^31, rope 0, ...), an unsupported model_type, activation or rope type. `where` is
  /// the file's path for the message.
  static LlavaConfig parse(const nlohmann::json& config, const std::string& where);
};

}  // namespace lft::llava
