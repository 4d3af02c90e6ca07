#include "src/debug/repeat/tensor_hash.h"

#include <array>
#include <bit>
#include <cstdio>
#include <cstring>

namespace lft::debug {
namespace {

/// One to one in `word` for a given hash, and in `hash` for a given word: a single changed word
/// always changes the end.
uint64_t mix(uint64_t hash, uint64_t word) {
  return std::rotl((hash ^ word) * 0x9e3779b97f4a7c15ull, 29);
}

uint64_t word_at(const char* from, uint64_t bytes = 8) {
  uint64_t word = 0;
  std::memcpy(&word, from, bytes);
  return word;
}

}  // namespace

uint64_t hash_bytes(const void* data, uint64_t bytes) {
  const char* const begin = static_cast<const char*>(data);
  std::array<uint64_t, 4> lanes = {1, 2, 3, 4};  // independent of each other, so that they overlap
  uint64_t at = 0;
  for (; at + 32 <= bytes; at += 32) {
    for (size_t lane = 0; lane < 4; ++lane)
      lanes[lane] = mix(lanes[lane], word_at(begin + at + 8 * lane));
  }
  uint64_t hash = mix(0, bytes);
  for (const uint64_t lane : lanes) hash = mix(hash, lane);
  for (; at + 8 <= bytes; at += 8) hash = mix(hash, word_at(begin + at));
  if (at < bytes) hash = mix(hash, word_at(begin + at, bytes - at));
  return mix(hash ^ (hash >> 32), 0);
}

uint64_t tensor_hash(const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach().to(at::kCPU).contiguous();
  uint64_t hash = mix(static_cast<uint64_t>(values.scalar_type()),
                      hash_bytes(values.const_data_ptr(), values.nbytes()));
  for (const int64_t size : values.sizes()) hash = mix(hash, static_cast<uint64_t>(size));
  return hash;
}

std::string hash_text(uint64_t hash) {
  char text[20];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

}  // namespace lft::debug
