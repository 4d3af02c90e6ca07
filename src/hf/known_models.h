// Published checkpoints whose shapes are known without their files, for estimates before a
// download.
#pragma once
#include <string>
#include <vector>

#include "src/io/json.h"

namespace lft::hf {

/// "llava-hf/llava-1.5-7b-hf", ...
std::vector<std::string> known_models();
/// The config.json of the checkpoint that `path` names by its last component; null if it names
/// none.
io::Json known_config(const std::string& path);

}  // namespace lft::hf
