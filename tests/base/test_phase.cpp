// Phases on a terminal and into a pipe, and the answer to a signal while one lasts.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

#include "src/base/bar.h"
#include "src/base/log.h"
#include "src/base/phase.h"
#include "src/base/signals.h"
#include "src/base/terminal.h"
#include "support/captured_stderr.h"

namespace lft::phase_test {
namespace {

using std::chrono::milliseconds;
using test::on_terminal;
using test::through_pipe;

TEST(Phase, ALineHasTheCountAndTheTimes) {
  EXPECT_EQ(phase_line({.what = "loading the model", .seconds = 7}), "loading the model 0:07");
  EXPECT_EQ(phase_line({.what = "answers", .total = 8, .seconds = 7}), "answers 0/8 0:07");
  EXPECT_EQ(phase_line({.what = "answers", .total = 8, .tokens = 1, .seconds = 7}),
            "answers 0/8, 1 token 0:07");
  EXPECT_EQ(phase_line({.what = "answers", .done = 2, .total = 8, .tokens = 17, .seconds = 20}),
            "answers 2/8, 17 tokens 0:20<1:00");
  EXPECT_EQ(phase_line({.what = "answers", .done = 8, .total = 8, .seconds = 20}),
            "answers 8/8 0:20<0:00");
}

TEST(Phase, AnAnswerToASignalNamesTheKeyOnlyOfAKeyboard) {
  EXPECT_EQ(stopping_line("after this step", SIGINT),
            "stopping after this step; press Ctrl-C again to quit now");
  EXPECT_EQ(stopping_line("after this step", SIGTERM),
            "stopping after this step; a second signal quits now");
}

TEST(Bar, FillsAndFitsEveryWidth) {
  setenv("NO_COLOR", "1", 1);
  EXPECT_EQ(with_bar("a line", 1, 4, 18), "[##......] a line");
  EXPECT_EQ(with_bar("a line", 1, 4, 15), "a line");  // no room for a bar
  EXPECT_EQ(with_bar("a line", 1, 4, 4), "a l");
  EXPECT_EQ(with_bar("a line", 4, 4, 200), "[" + std::string(40, '#') + "] a line");
  unsetenv("NO_COLOR");
}

void wait(int ms) { std::this_thread::sleep_for(milliseconds(ms)); }

TEST(Phase, IsDrawnAndRedrawnOnATerminalAndLeavesNothing) {
  const std::string text = on_terminal(60, [] {
    Phase phase("counting tokens", 4);
    wait(400);
    phase.done(2);
    wait(1300);
  });
  EXPECT_NE(text.find("] counting tokens 0/4 0:00"), std::string::npos) << text;
  EXPECT_NE(text.find("] counting tokens 2/4 0:01<0:01"), std::string::npos) << text;
  EXPECT_EQ(text.substr(text.size() - 4), "\r\x1b[K") << text;
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
}

/// The outer one is shown again after the inner one.
TEST(Phase, TheNewestOneIsShown) {
  const std::string text = on_terminal(60, [] {
    const Phase outer("outer");
    wait(400);
    {
      const Phase inner("inner");
      wait(400);
    }
    wait(400);
  });
  const size_t first = text.find("outer"), inner = text.find("inner"), last = text.rfind("outer");
  ASSERT_NE(inner, std::string::npos) << text;
  EXPECT_LT(first, inner);
  EXPECT_LT(inner, last);
}

TEST(Phase, AShortOneIsNotSeenInAPipe) {
  EXPECT_EQ(through_pipe([] {
              notice("begun");
              const Phase phase("short");
              wait(300);
            }),
            "begun\n");
}

/// Lines of other code count as output.
TEST(Phase, ALongOneHasALineAtMostFiveSecondsAfterTheLastOneInAPipe) {
  const std::string text = through_pipe([] {
    Phase phase("evaluation", 8);
    notice("begun");
    wait(3000);
    notice("a line");
    phase.done(2);
    wait(5000);
  });
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3) << text;
  EXPECT_EQ(text.substr(0, 30), "begun\na line\nevaluation 2/8 0:") << text;
}

TEST(Phase, ASignalIsAnsweredOnceAndAtOnce) {
  install_signal_handlers();
  const std::string text = through_pipe([] {
    const Phase outer("outer");
    const Phase phase("evaluation", 8, "the evaluation");
    raise(SIGINT);
    wait(500);
  });
  EXPECT_EQ(take_interrupt(), true);
  EXPECT_EQ(text, "stopping the evaluation; press Ctrl-C again to quit now\n");
  EXPECT_NE(through_pipe([] {
              const Phase phase("next one");
              wait(300);  // no signal is open now
              raise(SIGINT);
              wait(500);
            }).find("stopping after the next one; press"),
            std::string::npos);
  EXPECT_EQ(take_interrupt(), true);
}

/// Threads start and end with phases, from several threads at the same time.
TEST(Phase, ManyAtOnceEndCleanly) {
  const std::string text = through_pipe([] {
    notice("begun");
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([] {
        for (int k = 0; k < 200; ++k) {
          Phase phase("one of many", 3);
          phase.add();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  EXPECT_EQ(text, "begun\n");
}

}  // namespace
}  // namespace lft::phase_test
