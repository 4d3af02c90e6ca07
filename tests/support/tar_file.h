// Tar files for tests, in ustar format.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "src/data/rows/tar.h"

namespace lft::test {

/// Members by name, in this order, and the end marker.
inline std::string tar_file(const std::vector<std::pair<std::string, std::string>>& members) {
  std::string tar;
  for (const auto& [name, bytes] : members) {
    tar += data::tar_header(name, bytes.size()) + bytes;
    tar.resize((tar.size() + data::kTarBlock - 1) / data::kTarBlock * data::kTarBlock);
  }
  return tar + std::string(2 * data::kTarBlock, '\0');
}

}  // namespace lft::test
