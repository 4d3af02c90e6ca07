// Published checkpoints whose shapes are known without their files, for estimates before a
// download.
#pragma once
#include <string>
#include <vector>

#include "src/io/json.h"

namespace lft::hf {

/// Checkpoints of a family that differ in their size.
struct KnownSeries {
  std::string family;              // "Qwen3-VL"
  std::vector<std::string> names;  // "Qwen/Qwen3-VL-*-Instruct", ...: * is one of `sizes`
  std::vector<std::string> sizes;  // "2B", ...
};

/// All of them; a family may have several.
std::vector<KnownSeries> known_series();
/// "llava-hf/llava-1.5-7b-hf", ...
std::vector<std::string> known_models();
/// The family of the checkpoint that `path` names by its last component; empty if it names none.
std::string known_family(const std::string& path);
/// The config.json of that checkpoint; null if `path` names none.
io::Json known_config(const std::string& path);

}  // namespace lft::hf
