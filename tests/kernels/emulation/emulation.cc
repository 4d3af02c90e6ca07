#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <vector>

#include "tests/kernels/emulation/cuda_runtime_api.h"

namespace lft {
namespace emulation {

Index thread, block, grid;
void (*on_launch)(std::function<void()>) = nullptr;
void (*on_argument)(const void*, size_t) = nullptr;

namespace {

constexpr size_t kStack = 128 * 1024;
constexpr unsigned kLanes = 32;

/// ucontext makes the stack, once for all launches; switching between stacks is left to _setjmp,
/// which makes no system call.
struct Fiber {
  ucontext_t context = {};
  jmp_buf resume = {};
  bool started = false;
  std::vector<char> stack = std::vector<char>(kStack);
  bool done = false;
};
struct Barrier {
  unsigned arrived = 0, generation = 0;
};

std::vector<Fiber> fibers;
jmp_buf scheduler;
unsigned running = 0, width = 0;
uint64_t events = 0;  // arrivals at barriers and ends of threads: a round without one is a deadlock
Barrier block_barrier;
std::vector<Barrier> warp_barriers;
std::vector<uint64_t> lanes;
const std::function<void()>* body = nullptr;

void yield() {
  if (_setjmp(fibers[running].resume) == 0) _longjmp(scheduler, 1);
}

void wait(Barrier& barrier, unsigned count) {
  ++events;
  const unsigned generation = barrier.generation;
  if (++barrier.arrived == count) {
    barrier.arrived = 0;
    ++barrier.generation;
    return;
  }
  while (barrier.generation == generation) yield();
}

/// Lets a thread run to its next barrier or its end.
void run_thread(unsigned t) {
  Fiber& fiber = fibers[t];
  running = t;
  thread.x = t;
  if (_setjmp(scheduler) != 0) return;
  if (fiber.started) _longjmp(fiber.resume, 1);
  fiber.started = true;
  setcontext(&fiber.context);
}

void enter() {
  while (true) {
    (*body)();
    fibers[running].done = true;
    yield();  // until it is a thread again
  }
}

void run_block(std::mt19937& random) {
  std::vector<unsigned> order(width);
  for (unsigned t = 0; t < width; ++t) {
    order[t] = t;
    Fiber& fiber = fibers[t];
    fiber.done = false;
    if (fiber.started) continue;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.data();
    fiber.context.uc_stack.ss_size = fiber.stack.size();
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, enter, 0);
  }
  std::shuffle(order.begin(), order.end(), random);
  for (unsigned left = width; left > 0;) {
    const uint64_t before = events;
    for (const unsigned t : order) {
      if (fibers[t].done) continue;
      run_thread(t);
      if (!fibers[t].done) continue;
      --left;
      ++events;
    }
    if (events != before) continue;
    std::fputs("emulation: a barrier that not every thread reaches\n", stderr);
    std::abort();
  }
}

}  // namespace

void sync_block() { wait(block_barrier, width); }

uint64_t exchange(uint64_t bits, int lane_mask) {
  const unsigned warp = running / kLanes, lane = running % kLanes;
  lanes[running] = bits;
  wait(warp_barriers[warp], kLanes);
  const uint64_t other = lanes[warp * kLanes + (lane ^ static_cast<unsigned>(lane_mask))];
  wait(warp_barriers[warp], kLanes);
  return other;
}

}  // namespace emulation

void emulate(unsigned blocks, unsigned threads, const std::function<void()>& body) {
  using namespace emulation;
  static std::mt19937 random(1);
  emulation::body = &body;
  width = threads;
  grid.x = blocks;
  if (fibers.size() < threads) fibers.resize(threads);
  warp_barriers.assign(threads / kLanes, {});
  lanes.assign(threads, 0);
  block_barrier = {};
  std::vector<unsigned> order(blocks);
  for (unsigned b = 0; b < blocks; ++b) order[b] = b;
  std::shuffle(order.begin(), order.end(), random);
  for (const unsigned b : order) {
    block.x = b;
    run_block(random);
  }
}

}  // namespace lft
