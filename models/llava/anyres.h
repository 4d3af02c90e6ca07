// LLaVA-NeXT's and LLaVA-OneVision's images of any resolution: which of a few canvases an image is
// fitted into, and which positions of the canvas' features are the image's (LLaVA-NeXT, Liu et al.
// 2024; LLaVA-OneVision, Li et al. 2024, arXiv 2408.03326). Plain functions of sizes.
#pragma once
#include <cstdint>
#include <vector>

#include "models/image/image.h"

namespace lft::llava {

/// The canvas that shows the most of the image's own pixels, and of those the least beside them.
/// `canvases` is not empty.
image::Size best_canvas(const image::Size& image, const std::vector<image::Size>& canvases);

/// The image's size in the middle of the canvas, as large as it fits.
image::Size fitted_size(const image::Size& image, const image::Size& canvas);

/// The positions of a canvas that the image covers: `width` x `height` of them, from `left`, `top`.
struct Window {
  int64_t left = 0, top = 0, width = 0, height = 0;
};
Window covered_positions(const image::Size& image, const image::Size& positions);

/// Where there are more positions than `most_tiles` tiles of grid x grid have by far: as many as
/// these have, in the same form. 0 tiles: never.
image::Size shrunk_positions(const image::Size& positions, int64_t grid, int64_t most_tiles);

}  // namespace lft::llava
