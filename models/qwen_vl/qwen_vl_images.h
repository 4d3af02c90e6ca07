// Image preprocessing of Qwen-VL: the aspect ratio is kept, the sides become multiples of a
// position and the number of pixels is bounded, as in Qwen2VLImageProcessor of transformers
// (torchvision backend), in uint8.
#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>

#include "models/family/image_processor.h"
#include "models/family/processor_file.h"
#include "models/qwen_vl/config.h"

namespace lft::qwen_vl {

/// The text of an image.
constexpr char kImageText[] = "<|vision_start|><|image_pad|><|vision_end|>";

/// image_fit native; antialiased bicubic. Throws kUsage for another fit or contradictory bounds,
/// kInput for a file whose patches are not the tower's.
std::shared_ptr<const family::ImageProcessor> native_processor(const VisionConfig& vision,
                                                               const family::ProcessorFile& file,
                                                               const family::ImageRules& rules);

/// The object `file` with the bounds of the rules, if they have any.
nlohmann::json with_bounds(const VisionConfig& vision, const nlohmann::json& file,
                           const family::ImageRules& rules);

/// The size of an image after resizing: sides are multiples of `side`, the number of pixels is
/// within the bounds. Throws kInput if one side is more than 200 times the other.
struct PixelBounds {
  int64_t least, most;
};
image::Size native_size(const image::Size& size, int64_t side, const PixelBounds& bounds);

}  // namespace lft::qwen_vl
