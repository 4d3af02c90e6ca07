#include "src/io/safetensors.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/targets.h"
#include "tests/fuzz/tensor_file.h"

namespace lft::fuzz {
using namespace lft::io;

bool safetensors(std::string_view bytes) {
  static MemoryFile file;
  file.set(bytes);
  return reads(ErrorKind::kInput, [&] {
    const SafetensorsFile read(file.path());
    const uint64_t data = expect_tensors(read, bytes);
    expect(data <= bytes.size() - 8, "tensors do not overlap");
  });
}

}  // namespace lft::fuzz
