// A photograph as LLaVA-1.5 reads it: one square, as transformers' LlavaImageProcessor (torchvision
// backend) makes it, all in uint8.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "models/family/image_processor.h"
#include "models/family/processor_file.h"
#include "models/llava/config.h"

namespace lft::llava {

/// image_fit pad: mean colour to a square, then resize; crop: shortest side to size, centre crop.
/// Antialiased bicubic. kUsage for another fit, kInput for a file whose square is not the tower's.
std::shared_ptr<const family::ImageProcessor> square_processor(const LlavaFields& fields,
                                                               const family::ProcessorFile& file,
                                                               const family::ImageRules& rules);

/// Padded to a square with the mean colour, for a model whose other images are cut into tiles.
std::shared_ptr<const family::ImageProcessor> square_tiles(const LlavaFields& fields,
                                                           const family::ProcessorFile& file);

/// The processor's square must be the vision tower's. `key` is crop_size or size; an object, a bare
/// number, or nothing. Throws kInput.
void check_square(const family::ProcessorFile& file, const char* key, int64_t size);

/// The file's mean and standard deviation; CLIP's where it is silent.
void set_colours(const family::ProcessorFile& file, family::ImageProcessor& processor);

}  // namespace lft::llava
