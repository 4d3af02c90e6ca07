// The progress of a run: its text at every width, plain lines into a pipe, control sequences only
// on a terminal.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <thread>

#include "src/base/log.h"
#include "src/base/terminal.h"
#include "src/report/progress.h"
#include "support/captured_stderr.h"

namespace lft::progress_test {
using namespace lft::report;
using namespace lft::test;
namespace {

const StepMetrics kStep{
    .step = 10, .loss = 1.23454, .lr = 2e-4, .grad_norm = 0.534, .tokens_per_s = 123.4};

ProgressState state(double eta_s = 12) {
  return {.metrics = kStep,
          .total_steps = 400,
          .epoch = 0.25,
          .eval_loss = 1.1034,
          .elapsed_s = 7,
          .eta_s = eta_s};
}

TEST(Progress, LineHasEveryPartThatIsKnown) {
  EXPECT_EQ(progress_line(state()),
            "step 10/400  epoch 0.25  loss 1.2345  eval 1.1034  grad 0.534  lr 2.0e-04  123 tok/s  "
            "0:07 elapsed  eta 0:12");
  EXPECT_EQ(progress_line({.metrics = kStep, .total_steps = 400}),
            "step 10/400  loss 1.2345  grad 0.534  lr 2.0e-04  123 tok/s");
  ProgressState aside = state();
  aside.eval_s = 65;
  aside.checkpoint_s = 1;
  EXPECT_NE(progress_line(aside).find("tok/s  evaluations 1:05  checkpoints 0:01  0:07 elapsed"),
            std::string::npos)
      << progress_line(aside);
  EXPECT_NE(progress_line(state(3723)).find("eta 1:02:03"), std::string::npos);
  EXPECT_NE(progress_line(state(2 * 86400 + 3 * 3600 + 240)).find("eta 2d 03:04"),
            std::string::npos);
  EXPECT_NE(progress_line(state(1e300)).find("eta 11574d"), std::string::npos);
}

TEST(Progress, BarFillsAndFitsEveryWidth) {
  const std::string all =
      "step 10/400 epoch 0.25 loss 1.2345 eval 1.1034 grad 0.534 lr 2.0e-04 123 tok/s 0:07<0:12";
  EXPECT_EQ(progress_bar(state(), 200),
            "[" + std::string(1, '#') + std::string(39, '.') + "] " + all);
  EXPECT_EQ(progress_bar(state(), 80),
            "[.........] step 10/400 epoch 0.25 loss 1.2345 eval 1.1034 grad 0.534 0:07<0:12");
  for (int64_t width = 0; width < 200; ++width) {
    const std::string bar = progress_bar(state(), width);
    EXPECT_LT(columns_of(bar), std::max<int64_t>(width, 1)) << bar;
    EXPECT_TRUE(width < 33 || bar.find("step 10/400 loss") != std::string::npos ||
                bar.find("step 10/400 epoch 0.25 loss") != std::string::npos)
        << bar;
  }
  ProgressState none = state();
  none.total_steps = 0;
  EXPECT_EQ(progress_bar(none, 200).substr(0, 3), "[..");
}

TEST(Progress, OfPairsTheAccuracyIsShownOnceTheRewardsDiffer) {
  ProgressState pairs = state();
  pairs.metrics.figures = {{"rewards_chosen", 0.1},
                           {"rewards_rejected", -0.2},
                           {"reward_accuracy", 0.75},
                           {"reward_margin", 0.3},
                           {"logps_chosen", -5.0}};
  EXPECT_EQ(progress_bar(pairs, 80),
            "[......] step 10/400 loss 1.2345 accuracy 0.75 margin 0.3 eval 1.1034 0:07<0:12");
  EXPECT_NE(progress_line(pairs).find("loss 1.2345  accuracy 0.75  margin 0.3  eval 1.1034"),
            std::string::npos);
  for (auto& [name, value] : pairs.metrics.figures) value = name == "reward_accuracy" ? 1 : 1e-9;
  EXPECT_EQ(progress_line(pairs).find("accuracy"), std::string::npos);
}

/// One-second steps, and the end times of those with a line.
std::vector<int64_t> told_steps(int64_t steps, int64_t plain_every) {
  const std::string text = through_pipe([&] {
    double now = 0;
    Progress progress(
        {.total_steps = steps, .plain_every = plain_every, .clock = [&now] { return now; }});
    for (int64_t step = 1; step <= steps; ++step) {
      now += 1;
      progress.update({.step = step, .loss = 1, .lr = 1e-3, .tokens_per_s = 5});
    }
  });
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find('\r'), std::string::npos);
  std::vector<int64_t> told;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) told.push_back(std::stoll(line.substr(5)));
  return told;
}

TEST(Progress, ALineEveryFewSecondsIntoAPipe) {
  EXPECT_EQ(told_steps(20, 1), (std::vector<int64_t>{1, 6, 11, 16, 20}));
  EXPECT_EQ(told_steps(1, 1), std::vector<int64_t>{1});
  EXPECT_EQ(told_steps(20, 4), (std::vector<int64_t>{1, 8, 16, 20}));  // log.every_steps
}

TEST(Progress, FastStepsHaveTheirFirstAndLastLineOnly) {
  const std::string text = through_pipe([] {
    Progress progress({.total_steps = 1000, .clock = [] { return 0.0; }});
    for (int64_t step = 1; step <= 1000; ++step) progress.update({.step = step});
  });
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;
  EXPECT_NE(text.find("step 1000/1000"), std::string::npos);
}

TEST(Progress, OneLineRedrawnOnATerminal) {
  const std::string text = on_terminal(70, [] {
    double now = 0;
    Progress progress({.total_steps = 20, .clock = [&now] { return now; }});
    for (int64_t step = 1; step <= 20; ++step) {
      now += 1;
      progress.update({.step = step, .loss = 1, .lr = 1e-3, .grad_norm = 2, .tokens_per_s = 5});
    }
  });
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);  // the end of the bar
  EXPECT_EQ(text.substr(0, 5), "\r\x1b[K[");
  EXPECT_NE(text.find("] step 20/20 loss 1.0000 grad 2"), std::string::npos) << text;
  EXPECT_EQ(text.substr(text.size() - 2), "\r\n");
}

TEST(Progress, TheHeldOutLossIsShownOnceItIsKnown) {
  const std::string text = on_terminal(120, [] {
    double now = 0;
    Progress progress({.total_steps = 3, .steps_per_epoch = 2, .clock = [&now] { return now++; }});
    progress.update({.step = 1, .loss = 1});
    progress.eval_loss(0.5);
    progress.update({.step = 2, .loss = 1});
  });
  EXPECT_NE(text.find("step 1/3 epoch 0.50 loss 1.0000 grad "), std::string::npos) << text;
  EXPECT_NE(text.find("step 2/3 epoch 1.00 loss 1.0000 eval 0.5000 grad "), std::string::npos)
      << text;
}

TEST(Progress, ABarIsThereBeforeTheFirstStep) {
  const auto run = [](int64_t first) {
    return on_terminal(70, [first] {
      double now = 0;
      Progress progress(
          {.total_steps = 20, .first_step = first, .steps_per_epoch = 10, .clock = [&now] {
             return now;
           }});
      now = 100;  // phases before the first step are not part of its time
      progress.begin();
      now += 3;
      progress.update({.step = first + 1, .loss = 1, .lr = 1e-3});
    });
  };
  const std::string fresh = run(0), resumed = run(10);
  EXPECT_NE(fresh.find("[" + std::string(40, '.') + "] step 0/20 epoch 0.00 0:00"),
            std::string::npos)
      << fresh;
  EXPECT_EQ(fresh.find("nan"), std::string::npos) << fresh;
  EXPECT_NE(fresh.find("step 1/20 epoch 0.10 loss 1.0000 grad 0 lr 1.0e-03 0:03<0:57"),
            std::string::npos)
      << fresh;
  EXPECT_NE(resumed.find("] step 10/20 epoch 1.00 0:00"), std::string::npos) << resumed;
  EXPECT_NE(resumed.find("0:03<0:27"), std::string::npos) << resumed;
}

/// With the real clock: no update comes for more than a second, or five.
TEST(Progress, TheTimeIsRedrawnWithinALongStep) {
  const auto run = [](int ms) {
    Progress progress({.total_steps = 20, .clock = {}});
    progress.begin();
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
  };
  const std::string bar = on_terminal(70, [&] { run(1400); });
  EXPECT_NE(bar.find("] step 0/20 0:00"), std::string::npos) << bar;
  EXPECT_NE(bar.find("] step 0/20 0:01"), std::string::npos) << bar;
  const std::string plain = through_pipe([&] {
    notice("begun");
    run(5000);
  });
  EXPECT_EQ(plain.substr(0, 21), "begun\nstep 0/20  0:04") << plain;
}

}  // namespace
}  // namespace lft::progress_test
