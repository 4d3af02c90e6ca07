#include "src/cli/chat_input.h"

#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <filesystem>

#include "kernels/common/error.h"
#include "src/base/log.h"
#include "src/base/signals.h"
#include "src/base/terminal.h"
#include "src/base/text.h"

namespace lft::cli {
namespace {

constexpr size_t kMaxLine = 1u << 20;
constexpr int kRemembered = 1000;  // lines
constexpr std::string_view kImage = "/image ";

/// True if stdin has a byte or has ended; a signal ends the wait (a blocking read would be
/// restarted). `idle` is called five times a second.
template <class Idle>
bool wait_for_byte(const Idle& idle) {
  for (;;) {
    if (requested_signal() != 0) return false;
    pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    const int ready = poll(&input, 1, 200);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
    idle();
  }
}

/// libedit's source of characters: 1 with a character, 0 at the end of input, -1 after a signal.
int read_character(EditLine* editor, wchar_t* character) {
  std::mbstate_t state{};
  for (;;) {
    if (!wait_for_byte([&] { el_resize(editor); })) return -1;
    char byte = 0;
    const ssize_t got = read(STDIN_FILENO, &byte, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return static_cast<int>(got);
    const size_t used = std::mbrtowc(character, &byte, 1, &state);
    if (used == static_cast<size_t>(-2)) continue;  // the character has more bytes
    if (used != static_cast<size_t>(-1)) return 1;
    state = {};  // invalid UTF-8 is skipped
  }
}

char* prompt(EditLine*) {
  static char text[] = "> ";
  return text;
}

/// ~/.local/state/lft/chat_history, or in XDG_STATE_HOME; empty if it cannot be written.
std::string find_history_file() {
  const auto folder_of = [](const char* variable, const char* below) {
    const char* const value = std::getenv(variable);
    return value == nullptr || *value != '/' ? std::string() : std::string(value) + below;
  };
  std::string folder = folder_of("XDG_STATE_HOME", "/lft");
  if (folder.empty()) folder = folder_of("HOME", "/.local/state/lft");
  if (folder.empty()) return "";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  return access(folder.c_str(), W_OK | X_OK) == 0 ? folder + "/chat_history" : "";
}

/// File names that start with `path`; names of directories end with a slash.
std::vector<std::string> files_like(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash + 1);
  const std::string begin = path.substr(folder.size());
  std::vector<std::string> found;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder.empty() ? "." : folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(begin) || (begin.empty() && name.starts_with('.'))) continue;
    std::error_code unknown;
    found.push_back(folder + name + (entry->is_directory(unknown) ? "/" : ""));
  }
  std::ranges::sort(found);
  return found;
}

}  // namespace

ChatInput::ChatInput(std::vector<std::string> commands)
    : commands_(std::move(commands)), terminal_(isatty(STDIN_FILENO) == 1) {
  if (!terminal_ || !is_terminal(STDERR_FILENO)) return;
  setlocale(LC_CTYPE, "C.UTF-8");  // models read UTF-8 in any locale
  editor_ = el_init("lft", stdin, stderr, stderr);
  if (editor_ == nullptr) return;
  history_ = history_init();
  history_file_ = find_history_file();
  HistEvent event;
  history(history_, &event, H_SETSIZE, kRemembered);
  history(history_, &event, H_SETUNIQUE, 1);
  if (!history_file_.empty()) history(history_, &event, H_LOAD, history_file_.c_str());
  el_set(editor_, EL_CLIENTDATA, this);
  el_set(editor_, EL_HIST, history, history_);
  bind(editor_);
}

ChatInput::~ChatInput() {
  if (editor_ == nullptr) return;
  el_end(editor_);
  history_end(history_);
}

void ChatInput::bind(EditLine* editor) {
  el_set(editor, EL_PROMPT, prompt);
  el_set(editor, EL_EDITOR, "emacs");
  el_set(editor, EL_GETCFN, read_character);
  el_source(editor, nullptr);                        // ~/.editrc
  el_set(editor, EL_SETTY, "-d", "-isig", nullptr);  // Ctrl-C and Ctrl-Z are keys like the others
  el_set(editor, EL_ADDFN, "lft-cancel", "Clears the line.", on_cancel);
  el_set(editor, EL_ADDFN, "lft-suspend", "Suspends the program.", on_suspend);
  el_set(editor, EL_ADDFN, "lft-complete", "Completes the word.", on_tab);
  el_set(editor, EL_BIND, "^C", "lft-cancel", nullptr);
  el_set(editor, EL_BIND, "^Z", "lft-suspend", nullptr);
  el_set(editor, EL_BIND, "^I", "lft-complete", nullptr);
  el_set(editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
}

ChatInput& ChatInput::of(EditLine* editor) {
  void* self = nullptr;
  el_get(editor, EL_CLIENTDATA, &self);
  return *static_cast<ChatInput*>(self);
}

unsigned char ChatInput::on_cancel(EditLine* editor, int) {
  of(editor).cancelled_ = true;
  return CC_NEWLINE;
}

unsigned char ChatInput::on_suspend(EditLine* editor, int) {
  el_set(editor, EL_PREP_TERM, 0);
  raise(SIGTSTP);
  el_set(editor, EL_PREP_TERM, 1);
  return CC_REDISPLAY;
}

unsigned char ChatInput::on_tab(EditLine* editor, int) {
  of(editor).complete();
  return CC_REDISPLAY;
}

std::vector<std::string> ChatInput::candidates(const std::string& before) const {
  if (before.starts_with(kImage)) return files_like(before.substr(kImage.size()));
  std::vector<std::string> found;
  for (const std::string& command : commands_) {
    if (before.starts_with('/') && command.starts_with(before)) found.push_back(command);
  }
  return found;
}

/// Inserts the common prefix of all candidates, or shows them if there is none.
void ChatInput::complete() {
  const LineInfo* const line = el_line(editor_);
  const std::string before(line->buffer, line->cursor);
  const std::vector<std::string> found = candidates(before);
  if (found.empty()) return;
  std::string common = found.front();
  for (const std::string& one : found)
    common.resize(static_cast<size_t>(std::ranges::mismatch(common, one).in1 - common.begin()));
  const bool file = before.starts_with(kImage);
  const std::string typed = file ? before.substr(kImage.size()) : before;
  if (common.size() > typed.size()) {
    el_insertstr(editor_, common.substr(typed.size()).c_str());
  } else if (found.size() > 1) {
    std::vector<std::string> names = found;
    for (std::string& name : names) name.erase(0, file ? typed.rfind('/') + 1 : 0);
    std::fputs("\n", stderr);
    notice(join(names, "  ", 40));
  }
}

void ChatInput::remember(const std::string& line) {
  if (line.find_first_not_of(" \t") == std::string::npos) return;
  HistEvent event;
  history(history_, &event, H_ENTER, line.c_str());
  if (!history_file_.empty()) history(history_, &event, H_SAVE, history_file_.c_str());
}

std::optional<std::string> ChatInput::edited() {
  for (;;) {
    cancelled_ = false;
    int count = 0;
    el_set(editor_, EL_PREP_TERM, 1);  // before the prompt, so that no key comes too early
    const char* const text = el_gets(editor_, &count);
    std::string line = text == nullptr ? "" : std::string(text, static_cast<size_t>(count));
    if (cancelled_ || text == nullptr) std::fputs("\n", stderr);
    if (cancelled_ && !line.empty()) continue;
    if (text == nullptr) return std::nullopt;
    line.erase(line.find_last_not_of(" \t\n") + 1);
    remember(line);
    return line;
  }
}

bool ChatInput::wait() {
  if (!wait_for_byte([] {})) return false;
  char bytes[4096];
  const ssize_t got = read(STDIN_FILENO, bytes, sizeof bytes);
  if (got <= 0) return false;
  pending_.append(bytes, static_cast<size_t>(got));
  return true;
}

std::optional<std::string> ChatInput::piped() {
  const auto take = [&](size_t length, size_t used) {
    std::string line = pending_.substr(0, length);
    pending_.erase(0, used);
    return line;
  };
  for (;;) {
    if (const size_t end = pending_.find('\n'); end != std::string::npos) return take(end, end + 1);
    if (pending_.size() > kMaxLine) {
      refuse(ErrorKind::kUsage, "a line of more than 1 MB was typed", "stdin", {}, {},
             "ask in shorter lines, each of which is one question");
    }
    if (wait()) continue;
    if (pending_.empty() || requested_signal() != 0) return std::nullopt;
    return take(pending_.size(), pending_.size());
  }
}

std::optional<std::string> ChatInput::next() {
  if (editor_ != nullptr) return edited();
  if (terminal_) {
    std::fputs("> ", stderr);
    std::fflush(stderr);
  }
  return piped();
}

}  // namespace lft::cli
