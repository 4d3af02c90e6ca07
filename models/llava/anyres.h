// Images of any resolution in LLaVA-NeXT (Liu et al. 2024) and LLaVA-OneVision (Li et al. 2024,
// arXiv 2408.03326): the choice of a canvas for an image, and the positions of the canvas that
// belong to the image. Plain functions of sizes.
#pragma once
#include <cstdint>
#include <vector>

#include "models/image/image.h"

namespace lft::llava {

/// The canvas with the largest effective resolution for the image, and among those the one with the
/// least padding. `canvases` is not empty.
image::Size best_canvas(const image::Size& image, const std::vector<image::Size>& canvases);

/// The size of the image scaled to fit into the canvas.
image::Size fitted_size(const image::Size& image, const image::Size& canvas);

/// The positions of a canvas that the image covers: `width` x `height` positions from `left`,
/// `top`.
struct Window {
  int64_t left = 0, top = 0, width = 0, height = 0;
};
Window covered_positions(const image::Size& image, const image::Size& positions);

/// The size to which features with far more positions than `most_tiles` tiles of grid x grid are
/// reduced: about as many positions as those tiles have, with the same aspect ratio. 0 tiles: never
/// reduced.
image::Size shrunk_positions(const image::Size& positions, int64_t grid, int64_t most_tiles);

}  // namespace lft::llava
