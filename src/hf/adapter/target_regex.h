// The target_modules of an adapter_config.json: one regular expression that matches exactly the
// given modules, in any transformers >= 4.52.
#pragma once
#include <string>
#include <vector>

namespace lft::hf {

/// For Python's re.fullmatch. `names` as transformers 4.52 spells them
/// ("model.language_model.layers.0.self_attn.q_proj"); the "vision_model." that 5.6 dropped is
/// optional.
std::string target_regex(const std::vector<std::string>& names);

}  // namespace lft::hf
