// Saves the adapters of a model in PEFT's format.
#pragma once
#include <string>
#include <vector>

#include "src/hf/adapter/adapter.h"

namespace lft::hf {

/// Writes to `path` (atomically): LoRA of every injected site, modules_to_save of the `full` scopes
/// (llm, projector, vision). kUsage without any LoRA, which PEFT does not open: save_parts() and
/// save_model() are for that.
void save_adapter(const std::string& path, family::Model& model, const lora::LoraOptions& lora,
                  const std::vector<std::string>& full, const AdapterNotes& notes);

}  // namespace lft::hf
