// The target_modules of an adapter_config.json: the full names of exactly the given modules, in any
// transformers >= 4.52. A list, since SGLang reads no regular expression.
#pragma once
#include <string>
#include <vector>

#include "models/family/family.h"

namespace lft::hf {

/// `modules` are canonical. A module with another name in newer versions of transformers is listed
/// under both names: PEFT ignores names that its model does not have. Sorted.
std::vector<std::string> target_names(const family::Family& family,
                                      const std::vector<std::string>& modules);

}  // namespace lft::hf
