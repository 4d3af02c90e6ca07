// The libFuzzer entry point. LFT_FUZZ_TARGET names a function of targets.h; an exception ends
// the program, and libFuzzer keeps the input.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lft::fuzz::LFT_FUZZ_TARGET({reinterpret_cast<const char*>(data), size});
  return 0;
}
