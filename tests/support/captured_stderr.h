// What a body writes to stderr while it is a pipe or a terminal.
#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <functional>
#include <string>

namespace lft::test {

/// What has been written to the other end.
inline std::string read_available(int fd) {
  fcntl(fd, F_SETFL, O_NONBLOCK);
  std::string text;
  char buffer[4096];
  for (ssize_t got = 0; (got = read(fd, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(got));
  return text;
}

/// What `body` writes to stderr while stderr is `write_end`.
inline std::string captured(int write_end, int read_end, const std::function<void()>& body) {
  const int saved = dup(STDERR_FILENO);
  dup2(write_end, STDERR_FILENO);
  body();
  dup2(saved, STDERR_FILENO);
  close(saved);
  std::string text = read_available(read_end);
  close(write_end);
  close(read_end);
  return text;
}

inline std::string through_pipe(const std::function<void()>& body) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  return captured(ends[1], ends[0], body);
}

/// Without colours.
inline std::string on_terminal(unsigned short columns, const std::function<void()>& body) {
  setenv("TERM", "xterm", 1);
  setenv("NO_COLOR", "1", 1);
  int terminal = -1, program = -1;
  winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
  EXPECT_EQ(openpty(&terminal, &program, nullptr, nullptr, &size), 0);
  std::string text = captured(program, terminal, body);
  unsetenv("NO_COLOR");
  return text;
}

}  // namespace lft::test
