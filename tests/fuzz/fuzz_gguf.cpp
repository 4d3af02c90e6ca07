#include <vector>

#include "src/io/gguf/gguf.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/targets.h"

namespace lft::fuzz {
using namespace lft::io;

bool gguf(std::string_view bytes) {
  static MemoryFile file;
  file.set(bytes);
  return reads(ErrorKind::kInput, [&] {
    const GgufFile read(file.path());
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
    }
  });
}

}  // namespace lft::fuzz
