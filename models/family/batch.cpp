#include "models/family/batch.h"

#include <ATen/ATen.h>

#include "kernels/common/error.h"
#include "models/family/messages.h"

namespace lft::family {

SupervisedRows supervised_rows(const at::Tensor& labels_bt, int64_t vocab) {
  const int64_t t = labels_bt.size(1);
  const at::Tensor next = labels_bt.narrow(1, 1, t - 1);
  const at::Tensor found = (next != -100).nonzero();  // row-major
  const at::Tensor b = found.select(1, 0), position = found.select(1, 1);
  const at::Tensor targets = next.index({b, position});
  if (targets.numel() > 0) {
    const auto low = targets.min().item<int64_t>(), high = targets.max().item<int64_t>();
    if (low < 0 || high >= vocab) {
      throw Error(ErrorKind::kInput,
                  {.what = "a label is not a token of the model",
                   .where = {},
                   .found = std::to_string(low < 0 ? low : high),
                   .expected = "-100 or a token id in [0, " + std::to_string(vocab) + ")",
                   .next = kOfThisModel});
    }
  }
  return {b * t + position, targets};
}

std::vector<ImageShape> image_shapes(const Batch& batch) {
  if (!batch.images.empty() || !batch.pixels.defined()) return batch.images;
  const ImageShape one{.height = batch.pixels.size(2), .width = batch.pixels.size(3)};
  return {static_cast<size_t>(batch.pixels.size(0)), one};
}

std::vector<Batch> single_images(const Batch& batch) {
  std::vector<Batch> single;
  int64_t tile = 0, value = 0;
  for (const ImageShape& shape : image_shapes(batch)) {
    Batch& one = single.emplace_back();
    one.pixels = batch.pixels.dim() == 4 ? batch.pixels.narrow(0, tile, shape.tiles)
                                         : batch.pixels.narrow(0, value, shape.values())
                                               .view({shape.tiles, 3, shape.height, shape.width});
    if (!batch.images.empty()) one.images = {shape};
    tile += shape.tiles;
    value += shape.values();
  }
  return single;
}

std::vector<ImageShape> shown_shapes(const Batch& batch) {
  const std::vector<ImageShape> images = image_shapes(batch);
  if (batch.shown.empty()) return images;
  std::vector<ImageShape> shown;
  for (const int64_t image : batch.shown) shown.push_back(images.at(static_cast<size_t>(image)));
  return shown;
}

}  // namespace lft::family
