#include "models/image/image_resize.h"

#include <ATen/ops/_upsample_bicubic2d_aa.h>
#include <ATen/ops/_upsample_bilinear2d_aa.h>
#include <ATen/ops/from_blob.h>

namespace lft::image {
namespace {

bool is_of_size(const at::Tensor& image_nchw, const Size& to) {
  return image_nchw.size(3) == to.width && image_nchw.size(2) == to.height;
}

}  // namespace

at::Tensor as_tensor(const View& image) {
  return at::from_blob(const_cast<uint8_t*>(image.rgb_hwc), {1, 3, image.height, image.width},
                       {3 * image.height * image.width, 1, 3 * image.width, 3}, at::kByte);
}

at::Tensor resize_bicubic(const at::Tensor& image_nchw, const Size& to) {
  if (is_of_size(image_nchw, to)) return image_nchw;
  return at::_upsample_bicubic2d_aa(image_nchw, {to.height, to.width}, /*align_corners=*/false);
}

at::Tensor resize_bilinear(const at::Tensor& image_nchw, const Size& to) {
  if (is_of_size(image_nchw, to)) return image_nchw;
  return at::_upsample_bilinear2d_aa(image_nchw, {to.height, to.width}, /*align_corners=*/false);
}

}  // namespace lft::image
