// The families that lft reads, by the model_type of a config.json.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "models/family/family.h"

namespace lft::registry {

/// Every model_type that is read.
std::vector<std::string> model_types();
/// Null where no family reads it.
const family::Family* find_family(const std::string& model_type);
/// By the family of its model_type. Throws kInput, listing what lft reads, for another; and what
/// the family refuses.
family::ModelConfig parse_config(const nlohmann::json& config, const std::string& where);

/// The first that knows most of these PEFT keys' module parts; what families share (a decoder's
/// layers in dialect D2) has the same canonical names in all of them.
const family::Family& family_of_peft_names(const std::vector<std::string>& names);

}  // namespace lft::registry
