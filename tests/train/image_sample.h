// A random sample with an image, for a tiny LLaVA.
#pragma once
#include <random>
#include <string>

#include "src/data/store/sample.h"

namespace lft::test {

/// `supervised` of the `length` text tokens count; an image of 16 positions is before them.
inline data::Sample image_sample(uint64_t seed, int64_t length, int64_t supervised) {
  std::mt19937_64 random(seed);
  data::Sample sample{
      .id = "s" + std::to_string(seed), .input_ids = {1}, .labels = {}, .images = {}};
  for (int i = 0; i < 16; ++i) sample.input_ids.push_back(60);
  for (int64_t i = 0; i < length; ++i)
    sample.input_ids.push_back(3 + static_cast<int64_t>(random() % 50));
  sample.labels.assign(sample.input_ids.size(), -100);
  for (int64_t i = 0; i < supervised; ++i)
    sample.labels[sample.labels.size() - 1 - i] = sample.input_ids[sample.labels.size() - 1 - i];
  data::PixelImage image{.shape = {.height = 16, .width = 16}};
  for (int i = 0; i < 3 * 16 * 16; ++i) image.chw.push_back(static_cast<uint8_t>(random()));
  sample.images.push_back(image);
  return sample;
}

}  // namespace lft::test
