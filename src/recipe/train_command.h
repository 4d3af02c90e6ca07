// The printed command that starts another run from a run's resolved recipe.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "src/recipe/recipe.h"

namespace lft::recipe {

/// "lft train OUT/recipe.resolved.yaml --set output_dir=OUT<suffix> --set KEY=VALUE ...", quoted so
/// that a shell runs it unchanged. Values are in recipe form (value_text.h).
std::string next_run_command(const Recipe& recipe, const std::string& suffix,
                             const std::vector<std::pair<std::string, std::string>>& sets);

}  // namespace lft::recipe
