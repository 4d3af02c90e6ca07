// The shortest recipe, and the problems of a recipe's text.
#pragma once
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "kernels/common/error.h"
#include "src/recipe/recipe.h"

namespace lft::recipe_test {
using namespace lft::recipe;

inline constexpr char kMinimal[] =
    "version: 1\n"
    "output_dir: runs/a\n"
    "model: {path: ckpt}\n"
    "data: {train: rows.json}\n";

/// What a text field expects, as a message says it.
inline constexpr char kText[] =
    "text on one line (in quotes where it looks like a number, true, false or null)";

/// The lines of the error that a recipe is refused with; empty if it is read.
inline std::vector<std::string> problems(const std::string& text,
                                         const std::vector<std::string>& sets = {}) {
  try {
    parse_recipe(text, "r.yaml", sets);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kUsage);
    EXPECT_EQ(e.info().where, "r.yaml");
    std::vector<std::string> lines;
    std::istringstream stream(e.info().what);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
  }
  return {};
}

}  // namespace lft::recipe_test
