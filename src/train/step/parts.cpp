#include "src/train/step/parts.h"

#include <ATen/ceil_div.h>

#include <algorithm>

namespace lft::train {
namespace {

/// Rows of each part of a split micro-batch, except the last.
int64_t rows_of_part(int64_t rows, int64_t split, int64_t together) {
  return at::ceil_div(at::ceil_div(rows, together), split) * together;
}

}  // namespace

std::vector<std::vector<data::Sample>> parts_of(const std::vector<data::Sample>& micro,
                                                int64_t split, int64_t together) {
  std::vector<std::vector<data::Sample>> parts;
  const auto size = static_cast<size_t>(rows_of_part(std::ssize(micro), split, together));
  for (size_t begin = 0; begin < micro.size(); begin += size) {
    const auto first = micro.begin() + static_cast<std::ptrdiff_t>(begin);
    parts.emplace_back(first,
                       first + static_cast<std::ptrdiff_t>(std::min(size, micro.size() - begin)));
  }
  return parts;
}

int64_t count_parts(const GlobalBatch& whole, int64_t count, int64_t split, int64_t together) {
  int64_t parts = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t rows = whole.rows[static_cast<size_t>(i)],
                  each = std::max<int64_t>(1, rows_of_part(rows, split, together));
    parts += at::ceil_div(rows, each);
  }
  return parts;
}

}  // namespace lft::train
