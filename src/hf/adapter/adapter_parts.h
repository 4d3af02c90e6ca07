// Fully fine-tuned parts of a model, saved without LoRA.
#pragma once
#include <string>
#include <vector>

#include "src/hf/adapter/adapter.h"

namespace lft::hf {

/// Writes to `path` (atomically) what the `full` scopes hold, in float32 under the names of
/// transformers' state_dict; AdapterDir::open() reads it as an adapter without LoRA.
void save_parts(const std::string& path, family::Model& model, const std::vector<std::string>& full,
                const AdapterNotes& notes);

/// A folder that save_parts() wrote.
AdapterDir open_parts(const std::string& path);

}  // namespace lft::hf
