// The built lft on a terminal: the display at 80 and at 200 columns, both streams on one
// screen.
#include <gtest/gtest.h>
#include <pty.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>

#include "cli/run_lft.h"
#include "src/base/terminal.h"

namespace lft::terminal_run_test {
using namespace lft::recipe;
namespace {

using test::TinyRun;

struct Screen {
  int code = -1;
  std::string raw;
  std::vector<std::string> lines;

  std::string text() const {
    std::string all;
    for (const std::string& line : lines) all += line + "\n";
    return all;
  }
  /// The only line with this prefix; "" if none or several have it.
  std::string line(const std::string& start) const {
    std::string found;
    for (const std::string& each : lines) {
      if (!each.starts_with(start)) continue;
      if (!found.empty()) return "";
      found = each;
    }
    return found;
  }
};

/// The final contents of a screen of any height: \r goes to the start, ESC [ K clears to the
/// end, colours are ignored.
std::vector<std::string> screen_lines(const std::string& raw) {
  std::vector<std::string> lines(1);
  size_t column = 0;
  for (size_t i = 0; i < raw.size(); ++i) {
    std::string& line = lines.back();
    if (raw[i] == '\n') {
      lines.emplace_back();
      column = 0;
    } else if (raw[i] == '\r') {
      column = 0;
    } else if (raw[i] == '\x1b') {
      while (i < raw.size() && !std::isalpha(static_cast<unsigned char>(raw[i]))) ++i;
      if (raw[i] == 'K') line.resize(std::min(line.size(), column));
    } else {
      line.resize(std::max(line.size(), column + 1), ' ');
      line[column++] = raw[i];
    }
  }
  return lines;
}

Screen on_screen(unsigned short columns, const std::vector<std::string>& arguments,
                 const char* terminal = "xterm") {
  winsize size{.ws_row = 50, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
  int fd = -1;
  const pid_t child = forkpty(&fd, nullptr, nullptr, &size);
  if (child == 0) {
    setenv("TERM", terminal, 1);
    unsetenv("NO_COLOR");
    test::exec_lft(arguments);
  }
  Screen screen;
  char buffer[4096];
  for (ssize_t got = 0; (got = read(fd, buffer, sizeof buffer)) > 0;)
    screen.raw.append(buffer, static_cast<size_t>(got));
  close(fd);
  int status = 0;
  waitpid(child, &status, 0);
  screen.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  screen.lines = screen_lines(screen.raw);
  return screen;
}

/// Every line fits, except a single word that is too long.
void expect_fits(const Screen& screen, int64_t columns) {
  for (const std::string& line : screen.lines) {
    const size_t start = std::min(line.find_first_not_of(' '), line.size());
    EXPECT_TRUE(columns_of(line) <= columns || line.find(' ', start) == std::string::npos)
        << columns << ": " << line;
  }
}

class Terminal : public ::testing::TestWithParam<unsigned short> {};

TEST_P(Terminal, ARunsBarAndItsLinesStandEachOnTheirOwn) {
  const TinyRun run;
  Recipe recipe = run.recipe("out");
  recipe.train.max_steps = 12;
  recipe.train.eval_every_steps = 5;
  const std::string file = run.dir().write("run.yaml", dump_recipe(recipe));
  const Screen screen = on_screen(GetParam(), {"train", file});
  EXPECT_EQ(screen.code, 0) << screen.text();
  expect_fits(screen, GetParam());
  const std::string bar = screen.line("[");
  EXPECT_NE(bar.find("#] step 12/12 epoch 4.00 loss "), std::string::npos) << screen.text();
  EXPECT_NE(bar.find(" eval "), std::string::npos) << bar;
  EXPECT_NE(bar.find(" grad "), std::string::npos) << bar;
  EXPECT_NE(bar.find("<0:00"), std::string::npos) << bar;
  EXPECT_EQ(bar.find(" lr ") != std::string::npos, GetParam() > 80) << bar;
  EXPECT_TRUE(screen.line("done       12 steps in ").starts_with("done  ")) << screen.text();
  EXPECT_FALSE(screen.line("step 5: eval loss ").empty()) << screen.text();
  EXPECT_NE(screen.raw.find("\x1b[32m#"), std::string::npos) << "no colour";
}

TEST_P(Terminal, TablesAreFolded) {
  const TinyRun run;
  const std::string file = run.dir().write("run.yaml", dump_recipe(run.recipe("out")));
  const std::vector<std::vector<std::string>> commands = {
      {"check", file},      {"summary", run.model()},
      {"--help"},           {},
      {"recipe", "fields"}, {"eval", file, "--model", run.model()}};
  for (const std::vector<std::string>& command : commands) {
    const Screen screen = on_screen(GetParam(), command);
    EXPECT_EQ(screen.code, 0) << screen.text();
    EXPECT_GT(screen.lines.size(), 3u);
    expect_fits(screen, GetParam());
  }
}

TEST_P(Terminal, WhatIsSaidOfDataAndAMergeIsFolded) {
  const TinyRun run;
  const std::string file = run.dir().write("run.yaml", dump_recipe(run.recipe("out")));
  ASSERT_EQ(test::run_lft("train " + file).code, 0);
  const std::vector<std::vector<std::string>> commands = {
      {"validate", file},
      {"preview", file},
      {"prepare", file, "--out", run.dir().file("prepared")},
      {"merge", "--adapter", run.dir().file("out"), "--out", run.dir().file("merged")}};
  for (const std::vector<std::string>& command : commands) {
    const Screen screen = on_screen(GetParam(), command);
    EXPECT_EQ(screen.code, 0) << screen.text();
    EXPECT_GT(screen.text().size(), 80u) << command.front();
    expect_fits(screen, GetParam());
  }
}

/// Programs that read the last line of a pipe are not affected.
TEST_P(Terminal, AnEvaluationIsATableThere) {
  const TinyRun run;
  const std::string file = run.dir().write("run.yaml", dump_recipe(run.recipe("out")));
  const std::vector<std::string> eval = {"eval", file, "--model", run.model(), "--max-new-tokens",
                                         "1"};
  const Screen table = on_screen(GetParam(), eval);
  EXPECT_EQ(table.code, 0) << table.text();
  for (const char* start : {"model        ", "adapter      none: the base alone", "rows         12",
                            "loss         ", "exact match  0.0000"})
    EXPECT_FALSE(table.line(start).empty()) << start << "\n" << table.text();
  EXPECT_EQ(table.text().find('{'), std::string::npos) << table.text();
  std::vector<std::string> json = eval;
  json.emplace_back("--json");
  const Screen line = on_screen(GetParam(), json);
  EXPECT_NE(line.text().find("{\"model\":\""), std::string::npos) << line.text();
}

INSTANTIATE_TEST_SUITE_P(Columns, Terminal, ::testing::Values(80, 200));

TEST(Terminals, ADumbOneHasPlainLines) {
  const TinyRun run;
  const std::string file = run.dir().write("run.yaml", dump_recipe(run.recipe("out")));
  const Screen screen = on_screen(80, {"train", file}, "dumb");
  EXPECT_EQ(screen.code, 0);
  EXPECT_EQ(screen.raw.find('\x1b'), std::string::npos);
  EXPECT_FALSE(screen.line("step 1/6  ").empty()) << screen.text();
  EXPECT_FALSE(screen.line("step 6/6  ").empty()) << screen.text();
}

TEST(Terminals, AnErrorIsRedThere) {
  const Screen screen = on_screen(80, {"train", "/nowhere.yaml"});
  EXPECT_EQ(screen.code, 2);
  EXPECT_NE(screen.raw.find("\x1b[31merror:\x1b[0m "), std::string::npos) << screen.raw;
}

TEST(Terminals, AnErrorIsFoldedThere) {
  const Screen screen = on_screen(80, {"recipe", "cat", "no-such-recipe"});
  EXPECT_EQ(screen.code, 2);
  EXPECT_GT(screen.lines.size(), 5u) << "the names of all recipes: " << screen.text();
  expect_fits(screen, 80);
}

}  // namespace
}  // namespace lft::terminal_run_test
