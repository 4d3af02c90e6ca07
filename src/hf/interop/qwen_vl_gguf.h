// Qwen-VL in llama.cpp's files.
#pragma once
#include <string>

#include "models/family/config.h"
#include "src/hf/interop/gguf_form.h"

namespace lft::hf {

/// Why lft does not write a GGUF of the model, as a sentence; empty if it does.
std::string qwen_vl_without_gguf(const family::ModelConfig& config);
GgufForm qwen_vl_gguf(const family::ModelConfig& config);

}  // namespace lft::hf
