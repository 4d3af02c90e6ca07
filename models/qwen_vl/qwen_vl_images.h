// A photograph as Qwen2.5-VL and Qwen3-VL read it: in its own form, its sides brought to multiples
// of what is one position and its pixels between two bounds, as transformers' Qwen2VLImageProcessor
// (torchvision backend) makes it, all in uint8.
#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>

#include "models/family/image_processor.h"
#include "models/family/processor_file.h"
#include "models/qwen_vl/config.h"

namespace lft::qwen_vl {

/// What stands in the text for an image.
constexpr char kImageText[] = "<|vision_start|><|image_pad|><|vision_end|>";

/// image_fit native. Antialiased bicubic. kUsage for another fit or bounds that cross, kInput for a
/// file whose patches are not the tower's.
std::shared_ptr<const family::ImageProcessor> native_processor(const VisionConfig& vision,
                                                               const family::ProcessorFile& file,
                                                               const family::ImageRules& rules);

/// `file`, an object, with the rules' bounds instead of its own, where the rules have any.
nlohmann::json with_bounds(const VisionConfig& vision, const nlohmann::json& file,
                           const family::ImageRules& rules);

/// The size that an image of `size` is brought to: sides multiples of `side`, pixels within the
/// bounds. kInput where one side is more than 200 times the other.
struct PixelBounds {
  int64_t least, most;
};
image::Size native_size(const image::Size& size, int64_t side, const PixelBounds& bounds);

}  // namespace lft::qwen_vl
