// Image preprocessing of SmolVLM and Idefics3: tiles and the whole image, as in the processors of
// transformers with Pillow, in uint8.
#pragma once
#include <memory>
#include <vector>

#include "models/family/image_processor.h"
#include "models/family/processor_file.h"
#include "models/smolvlm/config.h"

namespace lft::smolvlm {

/// Throws kUsage for another image_fit than native, kInput for a file whose tiles are not the
/// tower's.
std::shared_ptr<const family::ImageProcessor> tile_processor(const SmolVlmFields& fields,
                                                             const family::ProcessorFile& file,
                                                             const family::ImageRules& rules);

}  // namespace lft::smolvlm
