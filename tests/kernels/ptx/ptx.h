// What translated PTX runs on: a runtime that takes the place of CUDA's. A launch runs every thread
// as a fiber (tests/kernels/emulation). Each access to memory is checked for bounds and alignment,
// shared memory begins with a pattern that is NaN in float32, and launches for their limits; a
// fault ends the process with one line.
//
// The approximate instructions return the exact result with the largest relative error that the PTX
// ISA documents, in a direction that depends on the operands, so that no test relies on less.
// https://docs.nvidia.com/cuda/parallel-thread-execution/
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/kernels/emulation/fibers.h"

namespace lft::ptx {

using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using s8 = int8_t;
using s16 = int16_t;
using s32 = int32_t;
using s64 = int64_t;

struct Entry {
  const char* name;
  void (*run)(void* const* arguments);  // by each thread; an argument's address each
  unsigned most_threads;                // of a block
  unsigned shared_bytes;
};
/// Adds the entries of a translated file to those that a launch finds by name.
struct Registered {
  explicit Registered(std::span<const Entry> entries);
};
/// Runs an entry. Ends the process for a name that no translated file contains.
void launch(const char* name, unsigned blocks, unsigned threads, void* const* arguments);
/// The names of entries that no launch has run.
std::vector<std::string> not_run();

[[noreturn]] void fault(const char* what, u64 address, u64 bytes);

/// An allocation of cudaMalloc.
struct Range {
  u64 begin = 0, end = 0;
};
extern Range last_range;
/// Sets last_range to the allocation that contains these bytes, or ends the process.
void find_range(u64 address, u64 bytes);
extern char shared_memory[48 * 1024];
extern unsigned shared_bytes;  // of the running entry

template <class T, unsigned count>
T* global_at(u64 address) {
  constexpr u64 bytes = count * sizeof(T);
  if (address % bytes != 0) fault("misaligned access to global memory", address, bytes);
  if (address < last_range.begin || address + bytes > last_range.end) find_range(address, bytes);
  return reinterpret_cast<T*>(address);
}
template <class T, unsigned count>
T* shared_at(u64 address) {
  constexpr u64 bytes = count * sizeof(T);
  const u64 at = static_cast<u32>(address);  // the window is addressed by 32 bits
  if (at % bytes != 0) fault("misaligned access to shared memory", at, bytes);
  if (at + bytes > shared_bytes) fault("access outside of shared memory", at, bytes);
  return reinterpret_cast<T*>(shared_memory + at);
}
/// A thread's own memory, or its entry's parameters.
template <class T, unsigned count>
T* local_at(u64 address) {
  return reinterpret_cast<T*>(address);
}
template <class T, unsigned count>
T* param_at(u64 address) {
  return reinterpret_cast<T*>(address);
}

/// shfl.sync.bfly among all lanes of a warp.
u32 exchanged(u32 value, u32 mask, u32 clamp, u32 members);
template <class T>
T atomic_add(T* at, T value) {
  const T before = *at;
  *at = static_cast<T>(before + value);
  return before;
}
template <class T>
T atomic_min(T* at, T value) {
  const T before = *at;
  if (value < before) *at = value;
  return before;
}

/// Integers are clamped to the width, as in PTX.
template <class T>
T shift_left(T value, u32 by) {
  return by >= 8 * sizeof(T) ? T{0} : static_cast<T>(value << by);
}
template <class T>
T shift_right(T value, u32 by) {
  if (by < 8 * sizeof(T)) return static_cast<T>(value >> by);
  return value < T{0} ? static_cast<T>(-1) : T{0};
}
template <class T>
T least(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return std::fmin(a, b);
  return b < a ? b : a;
}
template <class T>
T most(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return std::fmax(a, b);
  return a < b ? b : a;
}
inline u32 high_product(u32 a, u32 b) { return static_cast<u32>(u64{a} * b >> 32); }
template <class T>
bool either_nan(T a, T b) {
  return std::isnan(a) || std::isnan(b);
}
u32 permute(u32 low, u32 high, u32 selectors);

float approximate_quotient(float a, float b);  // 2 units in the last place
float approximate_exp2(float x);               // 2^-22
float approximate_rsqrt(float x);              // 2^-22.4
float fma_down(float a, float b, float c);     // rounded towards minus infinity
float saturate(float x);                       // to [0, 1]; NaN is 0
u16 to_bf16(float x);
u16 to_f16(float x);
float from_bf16(u16 bits);
float from_f16(u16 bits);
/// Two values of E4M3, `high` in the upper byte.
u16 to_e4m3x2(float high, float low);

}  // namespace lft::ptx
