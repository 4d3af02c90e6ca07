// A photograph as LLaVA-1.5 reads it: one square, as transformers' LlavaImageProcessor,
// CLIPImageProcessor and SiglipImageProcessor (torchvision backend) make it, all in uint8.
#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "models/family/image_processor.h"
#include "models/family/processor_file.h"
#include "models/llava/config.h"

namespace lft::llava {

/// image_fit pad: mean colour to a square, then resize; crop: shortest side to size, centre crop,
/// or stretched to the square where the file's processor does that; native: as the file's processor
/// does. Antialiased bicubic. kUsage for another fit, kInput for a file whose square is not the
/// tower's, or whose processor makes none.
std::shared_ptr<const family::ImageProcessor> square_processor(const LlavaFields& fields,
                                                               const family::ProcessorFile& file,
                                                               const family::ImageRules& rules);

/// Padded to a square with the mean colour, for a model whose other images are cut into tiles.
std::shared_ptr<const family::ImageProcessor> square_tiles(const LlavaFields& fields,
                                                           const family::ProcessorFile& file);

/// The processor's square must be the vision tower's. `key` is crop_size or size; an object, a bare
/// number, or nothing. Throws kInput.
void check_square(const family::ProcessorFile& file, const char* key, int64_t size);

/// Whether the file's processor is SiglipImageProcessor; else it is CLIP's or LLaVA's.
bool is_siglip(const nlohmann::json& file);
/// Whether the file's processor makes a square of an image of any form.
bool stretches(const nlohmann::json& file);

/// What the file's processor normalises with where the file does not say.
struct Colours {
  const std::vector<float>&mean, &std;
};
Colours silent_colours(const nlohmann::json& file);
/// The file's mean and standard deviation, or silent_colours().
void set_colours(const family::ProcessorFile& file, family::ImageProcessor& processor);

}  // namespace lft::llava
