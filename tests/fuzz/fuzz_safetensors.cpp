#include <vector>

#include "src/io/safetensors.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/targets.h"

namespace lft::fuzz {
using namespace lft::io;

bool safetensors(std::string_view bytes) {
  static MemoryFile file;
  file.set(bytes);
  return reads(ErrorKind::kInput, [&] {
    const SafetensorsFile read(file.path());
    uint64_t data = 0;
    for (const auto& [name, info] : read.tensors()) {
      expect(info.bytes <= bytes.size() && info.offset <= bytes.size() - info.bytes,
             "tensors lie in the file");
      expect(static_cast<uint64_t>(info.numel() * dtype_size(info.dtype)) == info.bytes,
             "a tensor's bytes are those of its shape");
      std::vector<char> values(info.bytes);
      read.read(info, values.data());
      expect(
          std::string_view(values.data(), values.size()) == bytes.substr(info.offset, info.bytes),
          "a tensor has the file's bytes");
      data += info.bytes;
    }
    expect(data <= bytes.size() - 8, "tensors do not overlap");
  });
}

}  // namespace lft::fuzz
