// Terminal output of stdout and stderr: folded lines, colours, and the line that stays at the end.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <stdlib.h>
#include <unistd.h>

#include <sstream>

#include "src/base/log.h"
#include "src/base/terminal.h"
#include "support/captured_stderr.h"

namespace lft::terminal_test {
namespace {

TEST(Fold, BreaksAtBlanksAndIndentsLikeTheSecondColumn) {
  EXPECT_EQ(fold("short", 80), "short");
  EXPECT_EQ(fold("data       one two three four", 22), "data       one two\n           three four");
  EXPECT_EQ(fold("one two three four", 9), "one two\n    three\n    four");
  EXPECT_EQ(fold("  where: aaa bbb", 12), "  where: aaa\n      bbb");
  EXPECT_EQ(fold("aaaaaa bbb  cc dd ee ff", 20), "aaaaaa bbb\n    cc dd ee ff");
  // The gap between columns belongs to no line.
  EXPECT_EQ(fold("aaaa bbbb      cccc", 12), "aaaa bbbb\n    cccc");
}

TEST(Fold, LeavesWordsWhole) {
  const std::string path(30, '/');
  EXPECT_EQ(fold(path, 10), path);
  EXPECT_EQ(fold("see " + path + " now", 10), "see\n    " + path + "\n    now");
  EXPECT_EQ(fold("", 10), "");
  EXPECT_EQ(fold("          ", 4), "          ");
}

TEST(Fold, EndsAtAnyWidth) {
  for (const int64_t width : {1, 2, 3}) {
    const std::string words = fold("two columns  of words", width);
    EXPECT_NE(words.find("columns"), std::string::npos) << width;
    EXPECT_LT(words.size(), 80U) << width;
  }
}

TEST(Fold, CountsColumnsAndNotBytes) {
  EXPECT_EQ(columns_of("\xc3\xa9t\xc3\xa9"), 3);
  EXPECT_EQ(columns_of("\x1b[32mgreen\x1b[0m"), 5);
  EXPECT_EQ(fold("\xc3\xa9\xc3\xa9\xc3\xa9 b", 5), "\xc3\xa9\xc3\xa9\xc3\xa9 b");
}

/// Every line of any table fits at every width, except a single word that is too long.
TEST(Fold, EveryPartFits) {
  const std::string row = "module  language_model.model  [1, 40, 4096]   16,777,216  12.3 MB  x";
  for (int64_t width = 28; width < 90; ++width) {
    std::istringstream lines(fold(row, width));
    std::string joined;
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(columns_of(line), width) << width << ": " << line;
      joined += line;
    }
    const auto squeezed = [](std::string text) {
      std::erase(text, ' ');
      return text;
    };
    EXPECT_EQ(squeezed(joined), squeezed(row)) << width;
  }
}

/// Output of `body` on a terminal that is both stdout and stderr.
template <class Body>
std::string on_terminal(Body body) {
  int terminal = -1, program = -1;
  winsize size{.ws_row = 24, .ws_col = 40, .ws_xpixel = 0, .ws_ypixel = 0};
  EXPECT_EQ(openpty(&terminal, &program, nullptr, nullptr, &size), 0);
  fflush(stdout);
  const int out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO);
  dup2(program, STDOUT_FILENO);
  dup2(program, STDERR_FILENO);
  body();
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  for (const int fd : {out, err}) close(fd);
  std::string text = test::read_available(terminal);
  close(program);
  close(terminal);
  return text;
}

class OnTerminal : public ::testing::Test {
 protected:
  OnTerminal() {
    setenv("TERM", "xterm", 1);
    unsetenv("NO_COLOR");
  }
};

TEST_F(OnTerminal, TheStatusStaysBelowWhatBothStreamsPrint) {
  const std::string text = on_terminal([] {
    show_status("[#..]");
    print_line("result");
    notice("notice");
    show_status("[##.]");
    keep_status();
    print_line("done");
  });
  const std::string clear = "\r\x1b[K";
  EXPECT_EQ(text, clear + "[#..]" + clear + "result\r\n[#..]" + clear + "notice\r\n[#..]" + clear +
                      "[##.]\r\ndone\r\n");
}

TEST_F(OnTerminal, AStatusThatIsTakenAwayLeavesNothing) {
  EXPECT_EQ(on_terminal([] {
              show_status("");
              show_status("x");
              show_status("");
              print_line("done");
            }),
            "\r\x1b[Kx\r\x1b[Kdone\r\n");
}

TEST_F(OnTerminal, LongLinesAreFoldedThere) {
  EXPECT_EQ(
      on_terminal([] { print_line("memory     " + std::string(20, 'a') + " bbb cccc dddd"); }),
      "memory     " + std::string(20, 'a') + " bbb cccc\r\n           dddd\r\n");
}

TEST_F(OnTerminal, ColoursOnlyWhereTheyAreWanted) {
  const std::string colour = "\x1b[33mwarning:\x1b[0m odd\r\n", plain = "warning: odd\r\n";
  const auto warned = [] { return on_terminal([] { warning("odd"); }); };
  EXPECT_EQ(warned(), colour);
  setenv("NO_COLOR", "", 1);  // as if it were not set
  EXPECT_EQ(warned(), colour);
  setenv("NO_COLOR", "1", 1);
  EXPECT_EQ(warned(), plain);
  unsetenv("NO_COLOR");
  setenv("TERM", "dumb", 1);
  EXPECT_EQ(warned(), plain);
  EXPECT_EQ(on_terminal([] {
              show_status("bar");
              keep_status();
            }),
            "");
}

}  // namespace
}  // namespace lft::terminal_test
