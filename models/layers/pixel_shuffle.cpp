#include "models/layers/pixel_shuffle.h"

#include <ATen/ATen.h>

#include <cmath>

#include "models/base/dims.h"

namespace lft::layers {

at::Tensor pixel_shuffle(const at::Tensor& features_nsd, int64_t scale) {
  expect_dims(features_nsd, "image features", {{"n"}, {"s"}, {"d"}});
  const int64_t tiles = features_nsd.size(0), d = features_nsd.size(2);
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(features_nsd.size(1)))),
             fewer = side / scale;
  // [n, rows, scale, columns, scale, d]
  return features_nsd.reshape({tiles, fewer, scale, fewer, scale, d})
      .permute({0, 1, 3, 2, 4, 5})
      .reshape({tiles, fewer * fewer, scale * scale * d});
}

}  // namespace lft::layers
