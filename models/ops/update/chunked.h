// The torch side of an op over many tensors in one launch (kernels/common/chunks.h): the loop over
// chunks on the CPU, the table on a GPU.
#pragma once
#include <ATen/Functions.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/common/chunks.h"
#include "models/ops/core/dispatch.h"
#include "models/ops/core/float_types.h"
#include "models/ops/core/parallel.h"

namespace lft::ops {

/// Calls body(number, chunk) for every chunk. Threads share the elements evenly: one fork for all
/// tensors together, however small they are.
template <class Item, class Body>
void for_each_chunk(const std::vector<Item>& items, const Body& body) {
  std::vector<Chunk> chunks;
  std::vector<int64_t> starts;  // elements before each chunk
  int64_t total = 0;
  for (size_t t = 0; t < items.size(); ++t) {
    for (int64_t first = 0; first < items[t].count; first += kChunk) {
      chunks.push_back({static_cast<int64_t>(t), first, std::min(kChunk, items[t].count - first)});
      starts.push_back(total);
      total += chunks.back().count;
    }
  }
  parallel_for(
      total, kLoopGrain,
      [&](int64_t begin, int64_t end) {  // a chunk belongs to the thread of its first element
        size_t number = std::lower_bound(starts.begin(), starts.end(), begin) - starts.begin();
        for (; number < chunks.size() && starts[number] < end; ++number)
          body(static_cast<int64_t>(number), chunks[number]);
      });
}

/// Copies the items to `device` asynchronously. Needs a GPU.
template <class Item>
at::Tensor upload(const std::vector<Item>& items, at::Device device) {
  const auto bytes = static_cast<int64_t>(items.size() * sizeof(Item));
  const at::Tensor host =
      at::empty({bytes}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
  if (bytes > 0) std::memcpy(host.mutable_data_ptr(), items.data(), bytes);
  return host.to(device, /*non_blocking=*/true);
}

}  // namespace lft::ops
