// A launch on a CPU: every thread of a block is a fiber, blocks and threads run in a shuffled
// order, and a barrier that not all threads reach aborts.
#pragma once
#include <cstdint>
#include <functional>

namespace lft {
/// Runs body as every thread of every block, as a launch does.
void emulate(unsigned blocks, unsigned threads, const std::function<void()>& body);
namespace emulation {
struct Index {
  unsigned x = 0;
};
extern Index thread, block, grid;
void sync_block();
uint64_t exchange(uint64_t bits, int lane_mask);  // called by every lane of the warp
}  // namespace emulation
}  // namespace lft
