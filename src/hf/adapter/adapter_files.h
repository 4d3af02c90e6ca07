// The files of an adapter's folder and PEFT's prefix of tensor names.
#pragma once

namespace lft::hf {

/// PEFT's prefix of the names of its tensors.
constexpr const char* kPeftPrefix = "base_model.model.";

inline constexpr const char* kAdapterWeights = "adapter_model.safetensors";
inline constexpr const char* kPartsWeights = "parts.safetensors";
inline constexpr const char* kAdapterNotes = "lft_adapter.json";
inline constexpr const char* kModelNotes = "lft_model.json";

inline constexpr const char* kTemplateHash = "template_sha256";  // key in lft_adapter.json

}  // namespace lft::hf
