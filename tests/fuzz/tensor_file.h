// Properties of every tensor file that a reader accepted.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "tests/fuzz/targets.h"

namespace lft::fuzz {

/// `read` was opened on `bytes`. Returns the total size of the tensors in bytes.
template <class File>
uint64_t expect_tensors(const File& read, std::string_view bytes) {
  uint64_t data = 0;
  for (const auto& [name, info] : read.tensors()) {
    expect(info.bytes <= bytes.size() && info.offset <= bytes.size() - info.bytes,
           "tensors lie in the file");
    expect(static_cast<uint64_t>(info.numel() * dtype_bits(info.dtype)) == 8 * info.bytes,
           "a tensor's bytes are those of its shape");
    std::vector<char> values(info.bytes);
    read.read(info, values.data());
    expect(std::string_view(values.data(), values.size()) == bytes.substr(info.offset, info.bytes),
           "a tensor has the file's bytes");
    data += info.bytes;
  }
  return data;
}

}  // namespace lft::fuzz
