// Image preprocessing of InternVL: tiles in the grid nearest to the image's aspect ratio, and the
// whole image as the last tile, as in GotOcr2ImageProcessor of transformers (torchvision backend),
// in uint8; also for the original layout, whose code resizes with Pillow.
#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>

#include "models/family/image_processor.h"
#include "models/family/processor_file.h"
#include "models/internvl/config.h"

namespace lft::internvl {

/// What transformers' processor replaces by an image's positions.
constexpr char kImageMark[] = "<IMG_CONTEXT>";

/// The number of whole tiles within a number of pixels, at least 1: data.max_pixels.
int64_t tiles_of(const InternVlFields& fields, int64_t max_pixels);
/// The grid of tiles of an image; of equally near ones the larger, unless it is more than twice the
/// image's area.
image::Size tile_grid(const image::Size& size, int64_t tile, const TileBounds& bounds);

/// The processor's file with the number of tiles of the rules, if they have one.
nlohmann::json with_most_tiles(const InternVlFields& fields, const nlohmann::json& file,
                               const family::ImageRules& rules);

/// Throws kUsage for another image_fit than native, kInput for a file whose tiles are not the
/// tower's.
std::shared_ptr<const family::ImageProcessor> tile_processor(const InternVlFields& fields,
                                                             const family::ProcessorFile& file,
                                                             const family::ImageRules& rules);

}  // namespace lft::internvl
