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

/// ucontext creates the stack, once for all launches; switching between stacks uses _setjmp,
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
std::vector<unsigned> order;  // the block's threads in this round
size_t turn = 0;              // index of the next thread in `order`
unsigned running = 0, width = 0, left = 0;
uint64_t events = 0;  // barrier arrivals and thread exits: a round without one is a deadlock
Barrier block_barrier;
std::vector<Barrier> warp_barriers;
std::vector<uint64_t> lanes[2];  // by parity of the exchange: a lane is at most one ahead
const std::function<void()>* body = nullptr;

/// Runs the next thread of the round to its next barrier or its end; after the last one the
/// scheduler continues.
[[noreturn]] void pass_on() {
  while (turn < order.size() && fibers[order[turn]].done) ++turn;
  if (turn == order.size()) _longjmp(scheduler, 1);
  running = thread.x = order[turn++];
  Fiber& fiber = fibers[running];
  if (fiber.started) _longjmp(fiber.resume, 1);
  fiber.started = true;
  setcontext(&fiber.context);
  std::abort();  // unreachable
}

void yield() {
  if (_setjmp(fibers[running].resume) == 0) pass_on();
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

void enter() {
  while (true) {
    (*body)();
    fibers[running].done = true;
    --left;
    ++events;
    yield();  // until it is a thread again
  }
}

void run_block(std::mt19937& random) {
  order.resize(width);
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
  left = width;
  while (left > 0) {
    const volatile uint64_t before = events;
    turn = 0;
    if (_setjmp(scheduler) == 0) pass_on();
    if (events != before) continue;
    std::fputs("emulation: a barrier that not every thread reaches\n", stderr);
    std::abort();
  }
}

}  // namespace

void sync_block() { wait(block_barrier, width); }

uint64_t exchange(uint64_t bits, int lane_mask) {
  const unsigned warp = running / kLanes, lane = running % kLanes;
  std::vector<uint64_t>& values = lanes[warp_barriers[warp].generation % 2];
  values[running] = bits;
  wait(warp_barriers[warp], kLanes);
  return values[warp * kLanes + (lane ^ static_cast<unsigned>(lane_mask))];
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
  for (std::vector<uint64_t>& values : lanes) values.assign(threads, 0);
  block_barrier = {};
  std::vector<unsigned> all(blocks);
  for (unsigned b = 0; b < blocks; ++b) all[b] = b;
  std::shuffle(all.begin(), all.end(), random);
  for (const unsigned b : all) {
    block.x = b;
    run_block(random);
  }
}

}  // namespace lft
