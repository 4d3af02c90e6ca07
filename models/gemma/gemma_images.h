// Image preprocessing of Gemma 3: an image is resized to the square of the tower, without keeping
// its aspect ratio.
#pragma once
#include <memory>

#include "models/family/image_processor.h"
#include "models/family/processor_file.h"
#include "models/gemma/config.h"

namespace lft::gemma {

/// Throws kInput for a processor file that does not belong to the model or enables pan and scan,
/// kUsage for another image_fit than native.
std::shared_ptr<const family::ImageProcessor> stretching_processor(
    const GemmaFields& fields, const family::ProcessorFile& file, const family::ImageRules& rules);

}  // namespace lft::gemma
