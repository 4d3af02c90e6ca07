// The progress bar: its text at every width, plain lines into a pipe, control sequences only on a
// terminal.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "src/report/progress.h"

namespace lft::progress_test {
using namespace lft::report;
namespace {

const StepMetrics kStep{.step = 10, .loss = 1.23454, .lr = 2e-4, .tokens_per_s = 123.4};

TEST(Progress, LineAndEta) {
  EXPECT_EQ(progress_line(kStep, 400, 12),
            "step 10/400  loss 1.2345  lr 2.0e-04  123 tok/s  eta 0:12");
  EXPECT_EQ(progress_line(kStep, 400, -1), "step 10/400  loss 1.2345  lr 2.0e-04  123 tok/s");
  EXPECT_NE(progress_line(kStep, 400, 3723).find("eta 1:02:03"), std::string::npos);
  EXPECT_NE(progress_line(kStep, 400, 2 * 86400 + 3 * 3600 + 240).find("eta 2d 03:04"),
            std::string::npos);
  EXPECT_NE(progress_line(kStep, 400, 1e300).find("eta 11574d"), std::string::npos);
}

TEST(Progress, BarFillsAndFitsEveryWidth) {
  const std::string line = progress_line(kStep, 40, 12);
  EXPECT_EQ(progress_bar(kStep, 40, 12, 200),
            "[" + std::string(10, '#') + std::string(30, '.') + "] " + line);
  EXPECT_EQ(progress_bar(kStep, 0, 12, 200).substr(0, 3), "[..");
  for (int64_t width = 0; width < 200; ++width)
    EXPECT_LT(progress_bar(kStep, 40, 12, width).size(),
              static_cast<size_t>(std::max<int64_t>(width, 1)));
}

/// What `body` writes to stderr while it is `fd`.
template <class Body>
std::string captured(int write_end, int read_end, Body body) {
  const int saved = dup(STDERR_FILENO);
  dup2(write_end, STDERR_FILENO);
  body();
  dup2(saved, STDERR_FILENO);
  close(saved);
  fcntl(read_end, F_SETFL, O_NONBLOCK);
  std::string text;
  char buffer[4096];
  for (ssize_t got = 0; (got = read(read_end, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(got));
  close(write_end);
  close(read_end);
  return text;
}

void run_twenty_steps() {
  Progress progress(20);
  progress.note("starts");
  for (int64_t step = 1; step <= 20; ++step)
    progress.update({.step = step, .loss = 1, .lr = 1e-3, .tokens_per_s = 5});
  progress.note("ends");
}

TEST(Progress, PlainLinesIntoAPipe) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const std::string text = captured(pipe_ends[1], pipe_ends[0], run_twenty_steps);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find('\r'), std::string::npos);
  EXPECT_EQ(text.substr(0, 35), "starts\nstep 1/20  loss 1.0000  lr 1");
  EXPECT_NE(text.find("\nstep 10/20  "), std::string::npos);
  EXPECT_NE(text.find("\nstep 20/20  "), std::string::npos);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 5);
}

TEST(Progress, OneLineRedrawnOnATerminal) {
  int terminal = -1, program = -1;
  winsize size{.ws_row = 24, .ws_col = 70, .ws_xpixel = 0, .ws_ypixel = 0};
  ASSERT_EQ(openpty(&terminal, &program, nullptr, nullptr, &size), 0);
  const std::string text = captured(program, terminal, run_twenty_steps);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);  // two notes and the end of the bar
  EXPECT_EQ(text.substr(0, 12), "\r\x1b[Kstarts\r\n");       // the terminal turns \n into \r\n
  EXPECT_NE(text.find("] step 20/20  "), std::string::npos);
  EXPECT_EQ(text.substr(text.size() - 2), "\r\n");
}

}  // namespace
}  // namespace lft::progress_test
