#include "src/base/text.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <utility>

#include "src/base/errors.h"

namespace lft {

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> before, last(b.size() + 1), now(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    now[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      now[j] =
          std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) now[j] = std::min(now[j], before[j - 2] + 1);
    }
    before = std::exchange(last, now);
  }
  return last[b.size()];
}

std::vector<std::string> closest_names(std::string_view name,
                                       const std::vector<std::string>& candidates, size_t max) {
  constexpr size_t kMaxLength =
      200;  // longer names are not misspellings, and the distance is quadratic
  std::vector<std::pair<int, std::string>> near;
  if (name.empty() || name.size() > kMaxLength) return {};
  for (const std::string& candidate : candidates) {
    if (candidate.size() > kMaxLength) continue;
    const int distance = edit_distance(name, candidate);
    const int allowed = std::max(1, static_cast<int>(std::max(name.size(), candidate.size())) / 3);
    const bool contained = name.size() >= 3 && candidate.find(name) != std::string::npos;
    if (distance <= allowed || contained) near.emplace_back(distance, candidate);
  }
  std::stable_sort(near.begin(), near.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> out;
  for (size_t i = 0; i < near.size() && i < max; ++i) out.push_back(near[i].second);
  return out;
}

std::string lower_ascii(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n\v\f";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) + 1 - begin);
}

bool is_blank_text(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

std::string join(const std::vector<std::string>& items, std::string_view separator, size_t max) {
  std::string out;
  for (size_t i = 0; i < items.size() && i < max; ++i) {
    if (i > 0) out += separator;
    out += items[i];
  }
  if (items.size() > max)
    out += std::string(separator) + "and " + std::to_string(items.size() - max) + " more";
  return out;
}

std::string utc_now(const char* format) {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[64];
  std::strftime(text, sizeof text, format, &utc);
  return text;
}

std::string shell_word(const std::string& word) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) || std::strchr("_./=:,@%+-", c) != nullptr;
  };
  // Bash reads the escapes that messages contain.
  if (escape_text(word, SIZE_MAX) != word) {
    std::string quoted = "$'";
    for (const unsigned char c : word) {
      char byte[8];
      std::snprintf(byte, sizeof byte, c < 0x20 || c >= 0x7f ? "\\x%02x" : "%c", c);
      quoted += c == '\'' || c == '\\' ? std::string("\\") + byte : byte;
    }
    return quoted + "'";
  }
  if (!word.empty() && std::ranges::all_of(word, plain)) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

std::string format_number(double value, const char* format) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string join_names(const std::vector<std::string>& names, size_t max) {
  std::vector<std::string> escaped;
  escaped.reserve(names.size());
  for (const std::string& name : names) escaped.push_back(escape_text(name));
  return join(escaped, ", ", max);
}

std::string with_commas(int64_t number) {
  std::string text = std::to_string(number);
  for (auto at = static_cast<int64_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<size_t>(at), ",");
  return text;
}

}  // namespace lft
