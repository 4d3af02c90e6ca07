// CUDA's runtime for translated PTX: registration, launches and memory, as nvcc's host code and the
// kernels' tests call them.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cfenv>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "kernels/common/float_type.h"
#include "tests/kernels/ptx/ptx.h"

namespace lft::ptx {

Range last_range;
char shared_memory[48 * 1024];
unsigned shared_bytes = 0;

namespace {

std::map<std::string, const Entry*>& entries() {
  static std::map<std::string, const Entry*> all;
  return all;
}
std::set<std::string>& executed() {
  static std::set<std::string> names;
  return names;
}
std::map<u64, u64>& allocations() {  // begin, end
  static std::map<u64, u64> all;
  return all;
}
/// nvcc's handle of a kernel, which is its host function here.
std::map<const void*, const char*>& kernels() {
  static std::map<const void*, const char*> names;
  return names;
}
const char* running = "";

/// The exact result with the largest relative error, up or down by the operands' bits, so that
/// equal operands give equal results.
float with_error(double exact, double relative, float a, float b = 0) {
  const u64 bits = u64{std::bit_cast<u32>(a)} << 32 | std::bit_cast<u32>(b);
  const u64 mixed = (bits ^ bits >> 31) * 0x9E3779B97F4A7C15ULL;
  return static_cast<float>(exact * (1 + ((mixed >> 60 & 1) != 0 ? relative : -relative)));
}

}  // namespace

Registered::Registered(std::span<const Entry> found) {
  for (const Entry& entry : found) entries()[entry.name] = &entry;
}

void fault(const char* what, u64 address, u64 bytes) {
  std::fprintf(stderr, "ptx: %s: %llu bytes at %llx, thread %u of block %u of %s\n", what,
               static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(address),
               emulation::thread.x, emulation::block.x, running);
  std::abort();
}

void find_range(u64 address, u64 bytes) {
  auto found = allocations().upper_bound(address);
  if (found != allocations().begin() && address + bytes <= std::prev(found)->second) {
    last_range = {std::prev(found)->first, std::prev(found)->second};
    return;
  }
  fault("access outside of global memory", address, bytes);
}

void launch(const char* name, unsigned blocks, unsigned threads, void* const* arguments) {
  const auto found = entries().find(name);
  running = name;
  if (found == entries().end()) fault("a launch of an entry that is not in the PTX", 0, 0);
  const Entry& entry = *found->second;
  if (blocks == 0 || blocks > 0x7FFFFFFF) fault("a launch with this number of blocks", 0, blocks);
  if (threads == 0 || threads > entry.most_threads)
    fault("a launch with more threads than .maxntid", 0, threads);
  if (entry.shared_bytes > sizeof shared_memory)
    fault("more static shared memory than a block has", 0, entry.shared_bytes);
  executed().insert(name);
  shared_bytes = entry.shared_bytes;
  int64_t block = -1;
  emulate(blocks, threads, [&] {
    if (block != emulation::block.x) {  // the block's first thread
      block = emulation::block.x;
      std::fill_n(shared_memory, shared_bytes, '\xFF');
    }
    entry.run(arguments);
  });
}

std::vector<std::string> not_run() {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries()) {
    if (!executed().contains(name)) names.push_back(name);
  }
  return names;
}

u32 exchanged(u32 value, u32 mask, u32 clamp, u32 members) {
  if (clamp != 31 || members != 0xFFFFFFFF) fault("an exchange among a part of a warp", 0, 0);
  return static_cast<u32>(emulation::exchange(value, static_cast<int>(mask)));
}

u32 permute(u32 low, u32 high, u32 selectors) {
  const u64 bytes = u64{high} << 32 | low;
  u32 result = 0;
  for (int i = 0; i < 4; ++i) {
    const u32 selector = selectors >> (4 * i);
    u32 byte = static_cast<u32>(bytes >> (8 * (selector & 7))) & 0xFF;
    if ((selector & 8) != 0) byte = (byte & 0x80) != 0 ? 0xFF : 0;
    result |= byte << (8 * i);
  }
  return result;
}

float approximate_quotient(float a, float b) {
  if (!(std::fabs(b) < 0x1p126f)) return std::isinf(b) && !std::isinf(a) ? 0.0f * a / b : a / b;
  const double exact = static_cast<double>(a) / b;
  return std::isfinite(exact) ? with_error(exact, 0x1p-23, a, b) : static_cast<float>(exact);
}
float approximate_exp2(float x) {
  return with_error(std::exp2(static_cast<double>(x)), 0x1p-22, x);
}
float approximate_rsqrt(float x) {
  const double exact = 1 / std::sqrt(static_cast<double>(x));
  return std::isfinite(exact) ? with_error(exact, 0x1p-22, x) : static_cast<float>(exact);
}
float fma_down(float a, float b, float c) {
  const int before = std::fegetround();
  std::fesetround(FE_DOWNWARD);
  const volatile float x = a, y = b, z = c;
  const volatile float result = std::fma(x, y, z);
  std::fesetround(before);
  return result;
}
float saturate(float x) { return std::isnan(x) ? 0.0f : std::clamp(x, 0.0f, 1.0f); }

u16 to_bf16(float x) {
  u16 bits = 0;
  store_float(FloatType::kBF16, &bits, 0, x);
  return bits;
}
u16 to_f16(float x) {
  u16 bits = 0;
  store_float(FloatType::kF16, &bits, 0, x);
  return bits;
}
float from_bf16(u16 bits) { return load_float(FloatType::kBF16, &bits, 0); }
float from_f16(u16 bits) { return load_float(FloatType::kF16, &bits, 0); }

namespace {

/// Sign, 4 bits of exponent with bias 7, 3 bits of mantissa; the largest value is 448.
u16 to_e4m3(float x) {
  if (std::isnan(x)) return 0x7F;
  const u16 sign = std::signbit(x) ? 0x80 : 0;
  const double size = std::min(std::fabs(static_cast<double>(x)), 448.0);
  const int exponent = size < 0x1p-6 ? -6 : std::ilogb(size);
  const auto steps = static_cast<int>(std::nearbyint(std::ldexp(size, 3 - exponent)));  // 0 to 16
  return static_cast<u16>(sign | ((exponent + 6) * 8 + steps));
}

}  // namespace

u16 to_e4m3x2(float high, float low) { return static_cast<u16>(to_e4m3(high) << 8 | to_e4m3(low)); }

}  // namespace lft::ptx

// nvcc's host code registers a kernel, pushes a launch's sizes, and pops them in the kernel's stub.
namespace {

struct Configuration {
  dim3 blocks, threads;
  size_t shared = 0;
  CUstream_st* stream = nullptr;
} pushed;

}  // namespace

extern "C" {

void** __cudaRegisterFatBinary(void* binary) { return static_cast<void**>(binary); }
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*,
                            dim3*, dim3*, int*) {
  lft::ptx::kernels()[host] = name;
}
unsigned __cudaPushCallConfiguration(dim3 blocks, dim3 threads, size_t shared,
                                     CUstream_st* stream) {
  pushed = {blocks, threads, shared, stream};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* blocks, dim3* threads, size_t* shared, void* stream) {
  *blocks = pushed.blocks;
  *threads = pushed.threads;
  *shared = pushed.shared;
  *static_cast<CUstream_st**>(stream) = pushed.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(host));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 blocks, dim3 threads, void** arguments,
                               size_t shared, cudaStream_t) {
  using namespace lft::ptx;
  running = kernels().at(kernel);
  if (blocks.y != 1 || blocks.z != 1 || threads.y != 1 || threads.z != 1 || shared != 0)
    fault("a launch in more than one dimension or with dynamic shared memory", 0, shared);
  launch(running, blocks.x, threads.x, arguments);
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** data, size_t bytes) {
  const size_t whole = (bytes + 255) / 256 * 256;
  *data = std::aligned_alloc(256, whole == 0 ? 256 : whole);
  std::memset(*data, 0xAB, whole);
  const auto begin = reinterpret_cast<uint64_t>(*data);
  lft::ptx::allocations()[begin] = begin + bytes;
  return cudaSuccess;
}
cudaError_t cudaFree(void* data) {
  lft::ptx::allocations().erase(reinterpret_cast<uint64_t>(data));
  lft::ptx::last_range = {};
  std::free(data);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t) {
  std::memset(to, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "translated PTX"; }

}  // extern "C"
