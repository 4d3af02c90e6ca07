// recipes/README.md: its table of fields equals the output of `lft recipe fields`, and the recipes
// that it lists exist.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "src/recipe/recipe.h"

namespace lft::reference_test {
using namespace lft::recipe;
namespace {

namespace fs = std::filesystem;
const fs::path kRecipes = fs::path(LFT_SOURCE_DIR) / "recipes";

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> page() {
  std::ifstream stream(kRecipes / "README.md");
  std::stringstream text;
  text << stream.rdbuf();
  return lines_of(text.str());
}

/// The rows of a page's table, its head included, that begins with the line `head`.
std::vector<std::string> table_of(const std::vector<std::string>& lines, const std::string& head) {
  std::vector<std::string> rows;
  for (const std::string& line : lines) {
    if (rows.empty() ? line != head : !line.starts_with("|")) {
      if (!rows.empty()) break;
      continue;
    }
    rows.push_back(line);
  }
  return rows;
}

TEST(RecipeReference, ThePageHasEveryFieldAsTheCommandPrintsIt) {
  const std::vector<std::string> fields = lines_of(recipe_reference());
  ASSERT_GT(fields.size(), 60u);
  const std::vector<std::string> written = table_of(page(), fields.front());
  for (size_t i = 0; i < std::max(fields.size(), written.size()); ++i) {
    EXPECT_EQ(i < written.size() ? written[i] : "no such line",
              i < fields.size() ? fields[i] : "no such field")
        << "recipes/README.md, \"Every field\": put the output of lft recipe fields there";
  }
}

TEST(RecipeReference, ATableEndsWhereItsRowsEnd) {
  const std::vector<std::string> lines = {"| a |", "text", "| b |", "|---|", "| 1 |", "", "| 2 |"};
  EXPECT_EQ(table_of(lines, "| b |"), (std::vector<std::string>{"| b |", "|---|", "| 1 |"}));
  EXPECT_TRUE(table_of(lines, "| c |").empty());
}

TEST(RecipeReference, ThePageListsTheRecipesThatAreThere) {
  std::set<std::string> there, listed;
  for (const auto& entry : fs::directory_iterator(kRecipes)) {
    if (entry.path().extension() == ".yaml") there.insert(entry.path().stem());
  }
  for (const std::string& row : table_of(page(), "| recipe | what it is for |")) {
    if (row.starts_with("| `")) listed.insert(row.substr(3, row.find('`', 3) - 3));
  }
  EXPECT_EQ(listed, there);
}

}  // namespace
}  // namespace lft::reference_test
