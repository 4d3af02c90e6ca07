// README.md as followed by a reader: its rows are read, and its commands run in their order as
// printed, over a tiny model instead of the 7B one.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/run_lft.h"
#include "src/train/inputs/run_inputs.h"

namespace lft::readme_test {
using namespace lft::test;
namespace {

namespace fs = std::filesystem;

/// Lines of the README's code blocks of one language ("": blocks without one), in order.
std::vector<std::string> block_lines(const std::string& language) {
  std::istringstream text(slurp(LFT_SOURCE_DIR "/README.md"));
  std::vector<std::string> lines;
  bool within = false, wanted = false;
  for (std::string line; std::getline(text, line);) {
    line.erase(0, line.find_first_not_of(' '));
    if (line.starts_with("```")) {
      within = !within;
      wanted = within && line == "```" + language;
    } else if (wanted) {
      lines.push_back(line);
    }
  }
  return lines;
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
  return text;
}

TEST(Readme, RowsOfEveryFormAreRead) {
  const TinyRun run;
  const std::vector<std::string> rows = block_lines("json");
  ASSERT_EQ(rows.size(), 3u);
  for (const std::string& row : rows) {
    Recipe recipe = run.recipe("out");
    recipe.data.eval.clear();
    recipe.data.train = run.dir().write("row.jsonl", replaced(row, "cat.jpg", "red0.bmp") + "\n");
    const train::RunInputs inputs = train::open_inputs(recipe);
    ASSERT_EQ(inputs.data.train->size(), 1) << row;
    const data::Sample sample = inputs.data.train->get(0);
    EXPECT_EQ(sample.images.size(), 1u) << row;
    EXPECT_GT(sample.supervised(), 0) << row;
  }
}

/// The rows of the run as the table of the page's first example.
std::string own_rows() {
  std::string lines = "image,question,answer\n";
  for (int i = 0; i < 12; ++i) {
    const char* const colour = i % 3 == 0 ? "red" : i % 3 == 1 ? "green" : "blue";
    const std::string name = colour + std::to_string(i);
    lines += name + ".bmp,What?," + colour + "\n";
  }
  return lines;
}

class ReadmeCommands : public ::testing::Test {
 protected:
  ReadmeCommands() {
    const std::string here = run_.dir().path();
    fs::create_directories(here + "/build");
    fs::create_symlink(LFT_BINARY_DIR "/lft", here + "/build/lft");
    fs::create_directories(here + "/checkpoints");
    for (const char* name : {"llava-1.5-7b-hf", "SmolVLM-256M-Instruct"})
      fs::create_directory_symlink(run_.model(), here + "/checkpoints/" + name);
    fs::create_directories(here + "/data");
    fs::create_directory_symlink(here + "/images", here + "/data/images");
    fs::copy_file(here + "/rows.json", here + "/data/rows.json");
    run_.dir().write("data/rows.csv", own_rows());
    fs::copy_file(here + "/images/red0.bmp", here + "/cat.jpg");
  }
  /// Runs in the folder, in a shell.
  int code_of(const std::string& command) {
    const int status =
        std::system(("cd " + run_.dir().path() + " && LFT_RECIPES=" LFT_SOURCE_DIR "/recipes " +
                     "OMP_NUM_THREADS=1 " + command + " >out.txt 2>&1")
                        .c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  TinyRun run_;
};

TEST_F(ReadmeCommands, RunAsTheyArePrinted) {
  int ran = 0;
  for (const std::string& line : block_lines("")) {
    if (!line.starts_with("build/lft ")) continue;
    ++ran;
    EXPECT_EQ(code_of(line.substr(0, line.find(" #"))), 0) << line << "\n"
                                                           << slurp(run_.dir().file("out.txt"));
  }
  EXPECT_GE(ran, 12);
  EXPECT_TRUE(fs::exists(run_.dir().file("runs/rows-200/report.html")));
  EXPECT_TRUE(fs::exists(run_.dir().file("runs/smolvlm-cpu/adapter/adapter_config.json")));
  EXPECT_TRUE(fs::exists(run_.dir().file("my-model/config.json")));
}

}  // namespace
}  // namespace lft::readme_test
