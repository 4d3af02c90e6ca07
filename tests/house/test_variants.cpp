// A LoRA variant is declared in models/lora and nowhere else.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>

namespace fs = std::filesystem;

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
      std::transform(line.begin(), line.end(), line.begin(),
                     [](unsigned char letter) { return std::tolower(letter); });
      // Words, so that "Fedora" is none; "use_dora" is one.
      static const std::regex names("(^|[^a-z])(rslora|dora|lora_magnitude|pissa)([^a-z]|$)");
      EXPECT_FALSE(std::regex_search(line, names))
          << fs::relative(entry.path(), root) << ":" << number << ": " << line;
    }
  }
  EXPECT_GT(read, 100u);
}
