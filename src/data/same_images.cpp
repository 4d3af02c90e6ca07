#include "src/data/same_images.h"

#include <algorithm>

namespace lft::data {

bool same_images(const Sample& a, const Sample& b) {
  return std::ranges::equal(a.images, b.images, [](const PixelImage& x, const PixelImage& y) {
    return x.shape == y.shape && x.chw == y.chw;
  });
}

}  // namespace lft::data
