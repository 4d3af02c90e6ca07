// A LoRA variant is declared in models/lora and nowhere else.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
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
      for (const char* word : {"rslora", "dora", "lora_magnitude", "pissa"}) {
        EXPECT_EQ(line.find(word), std::string::npos)
            << fs::relative(entry.path(), root) << ":" << number << ": " << line;
      }
    }
  }
  EXPECT_GT(read, 100u);
}
