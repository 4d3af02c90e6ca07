#include "src/recipe/pair_words.h"

namespace lft::recipe {
namespace {

std::string counted(const Recipe& recipe, int64_t count, const std::string& single) {
  return std::to_string(count) + " " + (learns_from_pairs(recipe) ? "pair" : single) +
         (count == 1 ? "" : "s");
}

}  // namespace

bool learns_from_pairs(const Recipe& recipe) {
  return recipe.objective.name != ObjectiveName::kSft && !learns_from_labels(recipe);
}

bool learns_from_labels(const Recipe& recipe) {
  return recipe.objective.name == ObjectiveName::kKto;
}

std::string samples_text(const Recipe& recipe, int64_t count) {
  return counted(recipe, count, "sample");
}

std::string rows_text(const Recipe& recipe, int64_t count) { return counted(recipe, count, "row"); }

}  // namespace lft::recipe
