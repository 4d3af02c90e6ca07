// A LoRA variant is declared only in models/lora.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>

namespace fs = std::filesystem;

namespace {

/// Matched as a word: "Fedora" is no match; use_dora, DoRA and DoraLayer are.
bool names_a_variant(const std::string& line) {
  static const std::regex names("(^|[^a-z])(rslora|dora|lora_magnitude|pissa)([^a-z]|$)");
  static const std::regex humps("([a-z])([A-Z])");
  for (std::string each : {line, std::regex_replace(line, humps, "$1_$2")}) {
    std::transform(each.begin(), each.end(), each.begin(),
                   [](unsigned char letter) { return std::tolower(letter); });
    if (std::regex_search(each, names)) return true;
  }
  return false;
}

}  // namespace

TEST(Variants, AreFoundAsWords) {
  for (const char* line :
       {"use_dora", "DoRA", "class DoraLayer", "makeDora()", "\"rslora\"", "PiSSA"})
    EXPECT_TRUE(names_a_variant(line)) << line;
  EXPECT_FALSE(names_a_variant("Fedora 40"));
}

TEST(Variants, NoFileOfSrcNamesOne) {
  const fs::path root = LFT_SOURCE_DIR;
  size_t read = 0;
  for (const auto& entry : fs::recursive_directory_iterator(root / "src")) {
    const std::string extension = entry.path().extension();
    if (extension != ".h" && extension != ".cpp") continue;
    ++read;
    std::ifstream stream(entry.path());
    int number = 0;
    for (std::string line; std::getline(stream, line);) {
      ++number;
      EXPECT_FALSE(names_a_variant(line))
          << fs::relative(entry.path(), root) << ":" << number << ": " << line;
    }
  }
  EXPECT_GT(read, 100u);
}
