// Fully fine-tuned parts of a model, saved without LoRA.
#pragma once
#include <string>
#include <vector>

#include "src/hf/adapter/adapter.h"

namespace lft::hf {

/// Writes the parameters of the `full` scopes to `path` (atomically), in float32 under the names of
/// the state_dict of transformers; AdapterDir::open() reads it as an adapter without LoRA.
void save_parts(const std::string& path, family::Model& model, const std::vector<std::string>& full,
                const AdapterNotes& notes);

/// Opens a folder that save_parts() wrote.
AdapterDir open_parts(const std::string& path);

}  // namespace lft::hf
