// LLaVA in llama.cpp's files, which lft does not write.
#pragma once
#include <string>

#include "models/family/config.h"

namespace lft::hf {

/// The reason, as a sentence, if it is llama.cpp's; else empty.
std::string llava_without_gguf(const family::ModelConfig& config);

}  // namespace lft::hf
