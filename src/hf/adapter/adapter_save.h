// Saves the adapters of a model in PEFT's format.
#pragma once
#include <string>
#include <vector>

#include "src/hf/adapter/adapter.h"

namespace lft::hf {

/// Writes LoRA of all injected sites and modules_to_save of the `full` scopes (llm, projector,
/// vision) to `path` (atomically). Throws kUsage without LoRA, since PEFT does not open such an
/// adapter; use save_parts() or save_model().
void save_adapter(const std::string& path, family::Model& model, const lora::LoraOptions& lora,
                  const std::vector<std::string>& full, const AdapterNotes& notes);

}  // namespace lft::hf
