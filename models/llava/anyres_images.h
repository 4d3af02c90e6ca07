// Image preprocessing of LLaVA-NeXT and LLaVA-OneVision: the whole image as one tile, then the best
// canvas split into tiles, as in the processors of transformers (torchvision backend), in uint8.
#pragma once
#include <memory>

#include "models/family/image_processor.h"
#include "models/family/processor_file.h"
#include "models/llava/config.h"

namespace lft::llava {

/// In a row with several images, OneVision pads each to a square of one tile. Throws kUsage for an
/// image_fit other than native, kInput for a file that does not fit the model.
std::shared_ptr<const family::ImageProcessor> anyres_processor(const LlavaFields& fields,
                                                               const family::ProcessorFile& file,
                                                               const family::ImageRules& rules);

}  // namespace lft::llava
