// A training sample from raw row to model-ready arrays. Plain data.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "models/family/image_processor.h"

namespace lft::data {

/// An image as the model's processor makes it, before normalisation: uint8, tile after tile, each
/// [3, height, width].
struct PixelImage {
  family::ImageShape shape;
  std::vector<uint8_t> chw = {};
  int64_t positions = 0, tower_positions = 0;  // in the text, and in the vision tower
};

/// Tokenised, with image positions expanded. labels[i] is input_ids[i] or -100.
struct Sample {
  std::string id;
  std::vector<int64_t> input_ids, labels;
  std::vector<PixelImage> images;
  bool special_read = false;  // a special token in the row's own words was read as the token
  int32_t source = 0;         // of data.train, where it lists several
  int64_t supervised() const;
};

/// What a sample costs, known without its pixels. tokens: image positions expanded, after
/// truncation. cut: supervised tokens that truncation took; 0 of prepared samples.
/// reading: bytes that are held at the most while its largest image is read; 0 of prepared samples.
struct SampleLength {
  int32_t tokens = 0, supervised = 0, images = 0, cut = 0;
  int64_t reading = 0;
  int64_t values = 0, tower = 0, placed = 0;  // of all its images: numbers of pixels, positions in
                                              // the vision tower and in the text
  void add_image(const family::ImagePlan& plan) {
    values += plan.shape.values();
    tower += plan.tower_positions;
    placed += plan.positions();
  }
};

}  // namespace lft::data
