#include "src/hf/interop/llava_gguf.h"

#include "models/llava/config.h"

namespace lft::hf {

std::string llava_without_gguf(const family::ModelConfig& config) {
  if (llava::fields(config).siglip) return "";
  return "llama.cpp's CLIP towers read the class position last (its pull request 25844), and "
         "answer "
         "otherwise";
}

}  // namespace lft::hf
