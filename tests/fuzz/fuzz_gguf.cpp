#include "src/io/gguf/gguf.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/targets.h"
#include "tests/fuzz/tensor_file.h"

namespace lft::fuzz {
using namespace lft::io;

bool gguf(std::string_view bytes) {
  static MemoryFile file;
  file.set(bytes);
  return reads(ErrorKind::kInput, [&] {
    const GgufFile read(file.path());
    expect_tensors(read, bytes);
  });
}

}  // namespace lft::fuzz
