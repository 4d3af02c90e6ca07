#include "src/base/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace lft {
namespace {

/// The column where a continuation begins.
int64_t indent_of(std::string_view line, int64_t width) {
  const size_t start = std::min(line.find_first_not_of(' '), line.size());
  const size_t gap = line.find("  ", start);
  const size_t second = gap == std::string_view::npos ? gap : line.find_first_not_of(' ', gap);
  if (second != std::string_view::npos && columns_of(line.substr(0, second)) <= width / 2)
    return columns_of(line.substr(0, second));
  return std::min(static_cast<int64_t>(start) + 4, width / 2);
}

/// Bytes of the longest prefix of at most `width` columns that ends before a blank, preferably
/// before a gap between columns; if the first word is wider, the length of that word.
size_t part_length(std::string_view text, int64_t width) {
  size_t word = 0, column = 0;
  const size_t first = std::min(text.find_first_not_of(' '), text.size());
  for (size_t end = text.find(' ', first); end != std::string_view::npos;
       end = text.find(' ', end + 1)) {
    if (columns_of(text.substr(0, end)) > width) {
      if (word == 0) return end;
      break;
    }
    if (text[end - 1] == ' ') continue;
    word = end;
    if (text.substr(end).starts_with("  ")) column = end;
  }
  if (word == 0) return text.size();
  return column > 0 && columns_of(text.substr(0, column)) >= width / 2 ? column : word;
}

}  // namespace

bool is_terminal(int fd) {
  const char* const kind = std::getenv("TERM");
  return isatty(fd) == 1 && (kind == nullptr || std::string_view(kind) != "dumb");
}

int64_t terminal_width(int fd) {
  winsize size{};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string coloured(std::string_view text, Colour colour, int fd) {
  const char* const none = std::getenv("NO_COLOR");
  if (!is_terminal(fd) || (none != nullptr && *none != '\0')) return std::string(text);
  return "\x1b[" + std::to_string(static_cast<int>(colour)) + "m" + std::string(text) + "\x1b[0m";
}

int64_t columns_of(std::string_view text) {
  int64_t columns = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      i = std::min(text.find('m', i), text.size());
      continue;
    }
    columns += (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80;  // not a continuation byte
  }
  return columns;
}

std::string fold(std::string_view line, int64_t width) {
  if (columns_of(line) <= width) return std::string(line);
  const int64_t indent = indent_of(line, width);
  std::string out;
  for (int64_t room = width; columns_of(line) > room; room = width - indent) {
    const size_t length = part_length(line, room);
    const size_t next = line.find_first_not_of(' ', length);
    if (next == std::string_view::npos) break;
    out +=
        std::string(line.substr(0, length)) + "\n" + std::string(static_cast<size_t>(indent), ' ');
    line.remove_prefix(next);
  }
  return out + std::string(line);
}

}  // namespace lft
