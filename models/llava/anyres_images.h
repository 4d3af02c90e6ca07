// A photograph as LLaVA-NeXT and LLaVA-OneVision read it: the whole of it as one tile, then the
// canvas it fits best cut into tiles, as transformers' processors (torchvision backend) make them,
// all in uint8.
#pragma once
#include <memory>

#include "models/family/image_processor.h"
#include "models/family/processor_file.h"
#include "models/llava/config.h"

namespace lft::llava {

/// OneVision reads the images of a row that has several of them padded to a square, one tile each.
/// kUsage for an image_fit other than native, kInput for a file that does not fit the model.
std::shared_ptr<const family::ImageProcessor> anyres_processor(const LlavaFields& fields,
                                                               const family::ProcessorFile& file,
                                                               const family::ImageRules& rules);

}  // namespace lft::llava
