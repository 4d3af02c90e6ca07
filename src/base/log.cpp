#include "src/base/log.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "src/base/errors.h"
#include "src/base/terminal.h"

namespace lft {
namespace {

constexpr size_t kMaxLine = 4000, kMostWarnings = 1000;
constexpr char kClearLine[] = "\r\x1b[K";

/// The state of the terminal.
struct Status {
  std::mutex mutex;
  std::atomic<bool> quiet = false;
  std::string line;  // the status on the last line of the terminal
};
Status& status() {
  static Status one;
  return one;
}

struct KeptWarnings {
  std::mutex mutex;
  std::vector<std::string> texts;
};
KeptWarnings& kept_warnings() {
  static KeptWarnings one;
  return one;
}

/// The terminal may be closed during a run, which must not stop it.
void write_stderr(const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const ssize_t wrote = write(STDERR_FILENO, text.data() + at, text.size() - at);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return;
    at += static_cast<size_t>(wrote);
  }
}

/// Clears the status while something is printed.
class StatusAside {
 public:
  explicit StatusAside(int fd) : lock_(status().mutex), hides_(is_shown_on(fd)) {
    if (hides_) write_stderr(kClearLine);
  }
  ~StatusAside() {
    if (hides_) write_stderr(status().line);
  }
  StatusAside(const StatusAside&) = delete;

 private:
  static bool is_shown_on(int fd) { return !status().line.empty() && is_terminal(fd); }

  std::lock_guard<std::mutex> lock_;
  bool hides_;
};

/// Line by line; the text does not change if `fd` is not a terminal.
std::string folded(const std::string& text, int fd) {
  if (!is_terminal(fd)) return text;
  const int64_t width = terminal_width(fd);
  std::string out;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    out += (begin > 0 ? "\n" : "") + fold(std::string_view(text).substr(begin, end - begin), width);
    begin = end + 1;
  }
  return out;
}

void write_line(const std::string& line) {
  if (is_quiet()) return;
  const StatusAside aside(STDERR_FILENO);
  write_stderr(folded(line, STDERR_FILENO) + "\n");
}

}  // namespace

void be_quiet(bool quiet) { status().quiet = quiet; }
bool is_quiet() { return status().quiet; }

void print_line(const std::string& line) {
  if (is_quiet()) return;
  const StatusAside aside(STDOUT_FILENO);
  std::printf("%s\n", folded(line, STDOUT_FILENO).c_str());
  std::fflush(stdout);
}

void notice(std::string_view line) { write_line(escape_text(line, kMaxLine)); }

void warning(std::string_view line) {
  show_warning(line);
  if (is_quiet()) return;
  KeptWarnings& kept = kept_warnings();
  const std::lock_guard lock(kept.mutex);
  if (kept.texts.size() < kMostWarnings) kept.texts.emplace_back(line);
}

std::vector<std::string> take_warnings() {
  KeptWarnings& kept = kept_warnings();
  const std::lock_guard lock(kept.mutex);
  return std::exchange(kept.texts, {});
}

void show_warning(std::string_view line) {
  write_line(coloured("warning:", Colour::kYellow, STDERR_FILENO) + " " +
             escape_text(line, kMaxLine));
}

void warning_once(const std::string& line) {
  static std::mutex mutex;
  static std::set<std::string> printed;
  const std::lock_guard lock(mutex);
  if (printed.insert(line).second) warning(line);
}

void show_status(const std::string& line) {
  if (!is_terminal(STDERR_FILENO) || is_quiet()) return;
  const std::lock_guard lock(status().mutex);
  if (line.empty() && status().line.empty()) return;
  write_stderr(kClearLine + line);
  status().line = line;
}

void keep_status() {
  const std::lock_guard lock(status().mutex);
  if (status().line.empty()) return;
  write_stderr("\n");
  status().line.clear();
}

}  // namespace lft
