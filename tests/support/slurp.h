// The bytes of a file.
#pragma once
#include <fstream>
#include <sstream>
#include <string>

namespace lft::test {

/// Empty if there is no such file.
inline std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace lft::test
