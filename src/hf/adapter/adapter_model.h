// Saves a whole model in Hugging Face layout.
#pragma once
#include <string>

#include "src/hf/adapter/adapter.h"

namespace lft::hf {

/// Writes a whole model in Hugging Face layout (one safetensors file, config.json and the other
/// files copied from `source`), for full: [all].
void save_model(const std::string& path, family::Model& model, const ModelDir& source,
                const AdapterNotes& notes = {});

}  // namespace lft::hf
