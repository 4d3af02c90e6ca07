#include "src/hf/known_models.h"

#include <nlohmann/json.hpp>

namespace lft::hf {
namespace {

struct Known {
  std::string name;
  int64_t hidden, intermediate, layers, heads;  // sizes of its Vicuna decoder
};
/// LLaVA-1.5 as published on the Hugging Face hub, in FP16; the tower is CLIP ViT-L/14 at 336 px.
const Known kKnown[] = {{"llava-hf/llava-1.5-7b-hf", 4096, 11008, 32, 32},
                        {"llava-hf/llava-1.5-13b-hf", 5120, 13824, 40, 40}};

std::string last_component(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

}  // namespace

std::vector<std::string> known_models() {
  std::vector<std::string> names;
  for (const Known& known : kKnown) names.push_back(known.name);
  return names;
}

io::Json known_config(const std::string& path) {
  for (const Known& known : kKnown) {
    if (last_component(path) != last_component(known.name)) continue;
    return {{"model_type", "llava"},
            {"torch_dtype", "float16"},
            {"image_token_index", 32000},
            {"text_config",
             {{"model_type", "llama"},
              {"vocab_size", 32064},
              {"hidden_size", known.hidden},
              {"intermediate_size", known.intermediate},
              {"num_hidden_layers", known.layers},
              {"num_attention_heads", known.heads},
              {"num_key_value_heads", known.heads},
              {"max_position_embeddings", 4096},
              {"rms_norm_eps", 1e-5}}},
            {"vision_config",
             {{"model_type", "clip_vision_model"},
              {"hidden_size", 1024},
              {"intermediate_size", 4096},
              {"num_hidden_layers", 24},
              {"num_attention_heads", 16},
              {"image_size", 336},
              {"patch_size", 14}}}};
  }
  return nullptr;
}

}  // namespace lft::hf
