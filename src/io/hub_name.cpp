#include "src/io/hub_name.h"

#include <algorithm>
#include <cctype>

#include "src/io/files.h"

namespace lft::io {

bool is_hub_word(const std::string& word) {
  const auto fits = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_'; };
  return !word.empty() && std::isalnum(static_cast<unsigned char>(word.front())) &&
         std::ranges::all_of(word, [&](char c) { return c == '.' || fits(c); });
}

bool is_hub_name(const std::string& path) {
  const size_t slash = path.find('/');
  return slash != std::string::npos && is_hub_word(path.substr(0, slash)) &&
         is_hub_word(path.substr(slash + 1)) && !path_exists(path.substr(0, slash));
}

}  // namespace lft::io
