// How Gemma 3 sees a photograph: stretched to the tower's square, whatever its form.
#pragma once
#include <memory>

#include "models/family/image_processor.h"
#include "models/family/processor_file.h"
#include "models/gemma/config.h"

namespace lft::gemma {

/// kInput for a processor file that is not the model's or that turns pan and scan on, kUsage for
/// another image_fit than native.
std::shared_ptr<const family::ImageProcessor> stretching_processor(
    const GemmaFields& fields, const family::ProcessorFile& file, const family::ImageRules& rules);

}  // namespace lft::gemma
