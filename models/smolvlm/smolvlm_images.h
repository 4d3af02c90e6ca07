// Image preprocessing of SmolVLM and Idefics3: tiles and the whole image, as in the processors of
// transformers with Pillow, in uint8.
#pragma once
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "models/family/image_processor.h"
#include "models/family/processor_file.h"
#include "models/smolvlm/config.h"

namespace lft::smolvlm {

/// The side of the square with this number of pixels, rounded down: the longer side of an image
/// under data.max_pixels, the file's size.longest_edge.
int64_t longest_edge(int64_t max_pixels);
/// The processor's file with the longest edge of the rules, if they have one.
nlohmann::json with_longest_edge(const nlohmann::json& file, const family::ImageRules& rules);

/// Throws kUsage for another image_fit than native, kInput for a file whose tiles are not the
/// tower's.
std::shared_ptr<const family::ImageProcessor> tile_processor(const SmolVlmFields& fields,
                                                             const family::ProcessorFile& file,
                                                             const family::ImageRules& rules);

}  // namespace lft::smolvlm
