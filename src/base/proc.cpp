#include "src/base/proc.h"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace lft {

std::string line_value(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    std::string value =
        line.substr(std::min(line.find_first_not_of(" \t", key.size()), line.size()));
    if (value.size() >= 2 && value.front() == '"') value = value.substr(1, value.size() - 2);
    return value;
  }
  return "";
}

double line_bytes(const std::string& path, const std::string& key) {
  double kilobytes = 0;
  std::istringstream(line_value(path, key)) >> kilobytes;
  return kilobytes * 1024;
}

}  // namespace lft
