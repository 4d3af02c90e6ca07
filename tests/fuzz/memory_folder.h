// A folder of in-memory files for readers that require one.
#pragma once
#include <unistd.h>

#include <map>
#include <stdexcept>
#include <string>
#include <string_view>

#include "support/temp_dir.h"
#include "tests/fuzz/memory_file.h"

namespace lft::fuzz {

class MemoryFolder {
 public:
  std::string path() const { return folder_.path(); }
  /// Creates or replaces a file.
  void put(const std::string& name, std::string_view bytes) {
    const auto [file, fresh] = files_.try_emplace(name);
    file->second.set(bytes);
    if (fresh && symlink(file->second.path().c_str(), folder_.file(name).c_str()) != 0)
      throw std::runtime_error("cannot make a link");
  }

 private:
  test::TempDir folder_;
  std::map<std::string, MemoryFile> files_;
};

}  // namespace lft::fuzz
