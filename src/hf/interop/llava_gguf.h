// LLaVA in llama.cpp's format, which lft does not write.
#pragma once
#include <string>

#include "models/family/config.h"

namespace lft::hf {

/// Why lft does not write a GGUF of the model, if the reason is in llama.cpp; else empty.
std::string llava_without_gguf(const family::ModelConfig& config);

}  // namespace lft::hf
