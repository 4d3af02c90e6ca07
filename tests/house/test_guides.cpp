// tests/README.md: every test that its table names is there. And a rule of it that only the sources
// can show.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace fs = std::filesystem;

namespace {

const fs::path kRoot = LFT_SOURCE_DIR;

std::string slurp(const fs::path& path) {
  std::ifstream stream(path);
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

struct NamedTests {
  std::string file;
  std::vector<std::string> names;
};

/// `folder/test_x.cpp: Name, Other` of one line.
std::vector<NamedTests> tests_of(const std::string& line) {
  static const std::regex span("`([A-Za-z0-9_/]+\\.(?:cpp|py)): ([^`]+)`");
  std::vector<NamedTests> found;
  for (std::sregex_iterator it(line.begin(), line.end(), span), end; it != end; ++it) {
    NamedTests tests{.file = (*it)[1], .names = {}};
    std::stringstream list((*it)[2]);
    for (std::string name; std::getline(list, name, ',');)
      tests.names.push_back(name.substr(name.find_first_not_of(' ')));
    found.push_back(tests);
  }
  return found;
}

bool has_word(const std::string& text, const std::string& word) {
  return std::regex_search(text, std::regex("\\b" + word + "\\b"));
}

}  // namespace

TEST(Guides, EveryRowNamesTestsThatAreThere) {
  std::istringstream readme(slurp(kRoot / "tests/README.md"));
  int rows = 0;
  bool in_guides = false;
  for (std::string line; std::getline(readme, line);) {
    in_guides |= line.starts_with("### ");
    if (!in_guides || !line.starts_with("| ") || line.starts_with("| the text ")) continue;
    ++rows;
    const std::vector<NamedTests> tests = tests_of(line.substr(line.rfind(" | ")));
    EXPECT_FALSE(tests.empty()) << line;
    for (const NamedTests& each : tests) {
      const std::string source = slurp(kRoot / "tests" / each.file);
      EXPECT_FALSE(source.empty()) << each.file;
      for (const std::string& name : each.names)
        EXPECT_TRUE(has_word(source, name)) << each.file << " has no " << name;
    }
  }
  EXPECT_GE(rows, 90);
}

TEST(Guides, TheCacheIsEmptiedBetweenTrainingAndEvaluationOnly) {
  std::set<std::string> callers;
  for (const char* folder : {"kernels", "models", "src"}) {
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
      const std::string name = entry.path().filename();
      if (!entry.is_regular_file() || name == "device.cpp" || name == "device.h") continue;
      const std::string text = slurp(entry.path());
      if (text.find("empty_cache(") != std::string::npos ||
          text.find("emptyCache(") != std::string::npos)
        callers.insert(name);
    }
  }
  EXPECT_EQ(callers, (std::set<std::string>{"cuda_graph.cpp",
                                            "trainer.cpp"}));  // the one: where an arena begins
  const std::string trainer = slurp(kRoot / "src/train/run/trainer.cpp");
  const size_t first = trainer.find("empty_cache("), evaluation = trainer.find("evaluate(", first),
               second = trainer.find("empty_cache(", first + 1);
  EXPECT_LT(first, evaluation);
  EXPECT_LT(evaluation, second);
  EXPECT_EQ(trainer.find("empty_cache(", second + 1), std::string::npos);
}
