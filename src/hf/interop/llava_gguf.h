// LLaVA in llama.cpp's files, which lft does not write.
#pragma once
#include <string>

#include "models/family/config.h"

namespace lft::hf {

/// Why lft writes no GGUF of the model, if the reason is in llama.cpp; else empty.
std::string llava_without_gguf(const family::ModelConfig& config);

}  // namespace lft::hf
