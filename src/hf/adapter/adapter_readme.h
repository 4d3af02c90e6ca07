// README.md of an adapter or of fully fine-tuned parts.
#pragma once
#include <string>
#include <vector>

#include "src/hf/adapter/adapter.h"

namespace lft::hf {

/// README.md of an adapter (`rank`: with what its variant is) and of parts, each in `folder`: the
/// hub's header, whose it is, and Python that asks it as lft generate does.
std::string adapter_readme(const std::string& rank, const std::vector<std::string>& modules,
                           const AdapterNotes& notes, const family::ModelConfig& config,
                           const std::string& folder);

std::string parts_readme(const std::vector<std::string>& full, const AdapterNotes& notes,
                         const family::ModelConfig& config, const std::string& folder);

}  // namespace lft::hf
