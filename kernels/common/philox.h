// Philox4x32-10 (Salmon et al. 2011), the counter-based generator for dropout masks and adapter
// initialisation. Host and device. A draw is a pure function of (seed, stream, index): there is no
// state between draws, so order and thread count cannot change it.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/common/host_device.h"

#ifdef __CUDACC__
#define LFT_UNROLL_10 _Pragma("unroll 10")
#else
#define LFT_UNROLL_10 \
  _Pragma("GCC unroll 10")  // without it the loop over blocks does not vectorise
#endif

namespace lft {

struct PhiloxBlock {
  uint32_t word[4];
};

LFT_HOST_DEVICE uint64_t wide_product(uint32_t a, uint32_t b) {
#ifdef __CUDA_ARCH__
  // One instruction; nvcc compiles a 64-bit product to two.
  return uint64_t{__umulhi(a, b)} << 32 | a * b;
#else
  return uint64_t{a} * b;
#endif
}

LFT_HOST_DEVICE PhiloxBlock philox4x32_10(PhiloxBlock counter, uint32_t key0, uint32_t key1) {
  LFT_UNROLL_10
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = wide_product(0xD2511F53u, counter.word[0]);
    const uint64_t product1 = wide_product(0xCD9E8D57u, counter.word[2]);
    counter = {{static_cast<uint32_t>(product1 >> 32) ^ counter.word[1] ^ key0,
                static_cast<uint32_t>(product1),
                static_cast<uint32_t>(product0 >> 32) ^ counter.word[3] ^ key1,
                static_cast<uint32_t>(product0)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

/// Block number `block` of a stream: 128 random bits.
LFT_HOST_DEVICE PhiloxBlock philox_block(uint64_t seed, uint64_t stream, uint64_t block) {
  return philox4x32_10({{static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                         static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)}},
                       static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
}

/// Mixes every input bit into the whole result (the finaliser of splitmix64).
inline uint64_t philox_mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

/// The stream of a name at a step: FNV-1a of the name, mixed with step and micro-batch.
inline uint64_t philox_stream(const char* name, size_t length, uint64_t step,
                              uint64_t micro_batch) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (size_t i = 0; i < length; ++i)
    hash = (hash ^ static_cast<unsigned char>(name[i])) * 0x100000001B3u;
  hash = philox_mix(hash + 0x9E3779B97F4A7C15u);
  hash = philox_mix(hash + step);
  return philox_mix(hash + micro_batch + 0x9E3779B97F4A7C15u);
}

}  // namespace lft
