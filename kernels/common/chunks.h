// How an op over a list of tensors in one launch splits its work: each tensor into chunks of kChunk
// elements (the last one may be shorter), numbered in the order of the tensors. The split depends
// on the counts only, not on threads or the device.
#pragma once
#include <cstdint>

#include "kernels/common/host_device.h"

namespace lft {

constexpr int64_t kChunk =
    16384;  // a multiple of every vector load, so that chunks of an aligned tensor are aligned

struct Chunk {
  int64_t tensor = 0, first = 0, count = 0;  // elements first .. first + count - 1 of this tensor
};

LFT_HOST_DEVICE int64_t chunks_of(int64_t count) { return (count + kChunk - 1) / kChunk; }

/// Item: a struct with int64_t count (elements, may be 0) and first_chunk. Sets every first_chunk;
/// returns the number of chunks.
template <class Items>
int64_t number_chunks(Items& items) {
  int64_t chunks = 0;
  for (auto& item : items) {
    item.first_chunk = chunks;
    chunks += chunks_of(item.count);
  }
  return chunks;
}

/// Chunk number `index` of items[0 .. tensors - 1]: it belongs to the last item whose first_chunk
/// is at most `index` (empty items have no chunks).
template <class Item>
LFT_HOST_DEVICE Chunk find_chunk(const Item* items, int64_t tensors, int64_t index) {
  int64_t low = 0, high = tensors;  // the result is in [low, high)
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    if (items[middle].first_chunk <= index) {
      low = middle;
    } else {
      high = middle;
    }
  }
  Chunk chunk;
  chunk.tensor = low;
  chunk.first = (index - items[low].first_chunk) * kChunk;
  const int64_t left = items[low].count - chunk.first;
  chunk.count = left < kChunk ? left : kChunk;
  return chunk;
}

}  // namespace lft
