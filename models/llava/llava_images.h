// Image preprocessing of LLaVA-1.5: one square, as in LlavaImageProcessor, CLIPImageProcessor and
// SiglipImageProcessor of transformers (torchvision backend), in uint8.
#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "models/family/image_processor.h"
#include "models/family/processor_file.h"
#include "models/llava/config.h"

namespace lft::llava {

/// image_fit pad: padded to a square with the mean colour, then resized; crop: the shortest side
/// resized and the centre cropped, or resized to the square if the file's processor does that;
/// native: as the file's processor. Antialiased bicubic. Throws kUsage for another fit, kInput if
/// the file's square is not the tower's or its processor makes none.
std::shared_ptr<const family::ImageProcessor> square_processor(const LlavaFields& fields,
                                                               const family::ProcessorFile& file,
                                                               const family::ImageRules& rules);

/// Pads to a square with the mean colour, for a model that splits other images into tiles.
std::shared_ptr<const family::ImageProcessor> square_tiles(const LlavaFields& fields,
                                                           const family::ProcessorFile& file);

/// Throws kInput unless the processor's square is that of the vision tower. `key` is crop_size or
/// size: an object, a number, or absent.
void check_square(const family::ProcessorFile& file, const char* key, int64_t size);

/// Whether the file's processor is SiglipImageProcessor; else it is CLIP's or LLaVA's.
bool is_siglip(const nlohmann::json& file);
/// Whether the file's processor resizes an image to a square without keeping its aspect ratio.
bool stretches(const nlohmann::json& file);

/// The mean and standard deviation of the file's processor if the file has none.
struct Colours {
  const std::vector<float>&mean, &std;
};
Colours silent_colours(const nlohmann::json& file);
/// The file's mean and standard deviation, or silent_colours().
void set_colours(const family::ProcessorFile& file, family::ImageProcessor& processor);

}  // namespace lft::llava
