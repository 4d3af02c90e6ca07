// Shared helpers of this folder's tests: the golden tokenizers and scratch folders.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "kernels/common/error.h"
#include "src/text/tokenizer.h"

namespace lft::test {
using namespace lft::text;

inline std::string golden_dir(const std::string& name) {
  return std::string(LFT_SOURCE_DIR) + "/tests/goldens/tokenizers/" + name;
}

inline std::string read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// A copy of a golden tokenizer (or an empty folder), removed at the end.
class Scratch {
 public:
  explicit Scratch(const std::string& golden = "") {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("lft-text-" + std::to_string(getpid()) + "-" + std::to_string(count++));
    std::filesystem::create_directory(path_);
    if (!golden.empty()) std::filesystem::copy(golden_dir(golden), path_);
  }
  ~Scratch() { std::filesystem::remove_all(path_); }
  std::string path(const std::string& name = "") const {
    return name.empty() ? path_.string() : (path_ / name).string();
  }

 private:
  std::filesystem::path path_;
};

inline std::vector<int64_t> ids_of(const std::vector<Token>& tokens) {
  std::vector<int64_t> ids;
  for (const Token& token : tokens) ids.push_back(token.id);
  return ids;
}

/// Expects kInput and returns the printed error.
inline std::string load_failure(const std::string& dir) {
  try {
    Tokenizer::load(dir);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    const ErrorInfo& info = error.info();
    EXPECT_FALSE(info.next.empty() && info.expected.empty()) << info.what;
    return info.what + " | " + info.where + " | " + info.found + " | " + info.expected + " | " +
           info.next;
  }
  ADD_FAILURE() << "loaded";
  return "";
}

}  // namespace lft::test
