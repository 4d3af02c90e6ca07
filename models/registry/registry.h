// The supported model families, by the model_type of a config.json.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "models/family/family.h"

namespace lft::registry {

/// All supported model types.
std::vector<std::string> model_types();
/// Null if the type is not supported.
const family::Family* find_family(const std::string& model_type);
/// Parses with the family of its model_type. Throws kInput for another one, listing the supported
/// types, and for everything that the family rejects.
family::ModelConfig parse_config(const nlohmann::json& config, const std::string& where);

/// The family that recognises the most module parts of these PEFT keys. Names that families share
/// (the layers of a decoder in dialect D2) have the same canonical names in all of them.
const family::Family& family_of_peft_names(const std::vector<std::string>& names);

}  // namespace lft::registry
