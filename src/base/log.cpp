#include "src/base/log.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>

#include "src/base/errors.h"

namespace lft {
namespace {

void write_stderr(std::string text) {
  text += '\n';
  for (size_t at = 0; at < text.size();) {
    const ssize_t wrote = write(STDERR_FILENO, text.data() + at, text.size() - at);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return;
    at += static_cast<size_t>(wrote);
  }
}

constexpr size_t kMaxLine = 4000;

}  // namespace

void print_line(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void notice(std::string_view line) { write_stderr(escape_text(line, kMaxLine)); }

void warning(std::string_view line) { write_stderr("warning: " + escape_text(line, kMaxLine)); }

}  // namespace lft
