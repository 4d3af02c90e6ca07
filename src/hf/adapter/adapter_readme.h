// README.md of an adapter or of fully fine-tuned parts.
#pragma once
#include <string>
#include <vector>

#include "src/hf/adapter/adapter.h"

namespace lft::hf {

/// README.md of an adapter (`rank` includes the variant) and of parts, each in `folder`: the
/// metadata of the hub, the base, and Python code with the same output as lft generate.
std::string adapter_readme(const std::string& rank, const std::vector<std::string>& modules,
                           const AdapterNotes& notes, const family::ModelConfig& config,
                           const std::string& folder);

std::string parts_readme(const std::vector<std::string>& full, const AdapterNotes& notes,
                         const family::ModelConfig& config, const std::string& folder);

}  // namespace lft::hf
