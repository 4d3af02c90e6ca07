#include "src/base/bar.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "src/base/terminal.h"

namespace lft {
namespace {

constexpr int64_t kLongestBar = 40;

std::string bar_text(int64_t cells, int64_t done, int64_t total) {
  const int64_t full = total > 0 ? std::clamp<int64_t>(cells * done / total, 0, cells) : 0;
  return "[" +
         (full > 0
              ? coloured(std::string(static_cast<size_t>(full), '#'), Colour::kGreen, STDERR_FILENO)
              : "") +
         std::string(static_cast<size_t>(cells - full), '.') + "] ";
}

}  // namespace

std::string duration_text(double seconds) {
  const auto s = static_cast<int64_t>(std::min(seconds, 1e9));
  char buffer[64];
  if (s >= 86400) {
    snprintf(buffer, sizeof buffer, "%ldd %02ld:%02ld", s / 86400, s / 3600 % 24, s / 60 % 60);
  } else if (s >= 3600) {
    snprintf(buffer, sizeof buffer, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
  } else {
    snprintf(buffer, sizeof buffer, "%ld:%02ld", s / 60, s % 60);
  }
  return buffer;
}

std::string with_bar(const std::string& line, int64_t done, int64_t total, int64_t width) {
  const int64_t room = width - columns_of(line) - 4;  // brackets, a blank, an empty last column
  if (room >= kShortestBar) return bar_text(std::min(room, kLongestBar), done, total) + line;
  return line.substr(0, static_cast<size_t>(std::max<int64_t>(width - 1, 0)));
}

}  // namespace lft
