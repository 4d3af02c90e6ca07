// A prepared sample and its images as bytes: ids of 32 bits, runs of labels, image positions as
// runs, pixels packed. What is read back is checked against itself, not trusted.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/data/store/sample.h"

namespace lft::data {

/// Of one sample; `images` are numbers of stored images, `row` is row_to_json's text.
struct StoredSample {
  std::string id, row;
  std::vector<int32_t> ids;         // a run of image tokens is one
  std::vector<int32_t> labels;      // pairs: the first of `ids` that is learnt, and how many
  std::vector<int32_t> image_runs;  // positions of each image token in `ids`
  std::vector<int32_t> images;
};

StoredSample store_sample(const Sample& sample, std::string row, int64_t image_token,
                          std::vector<int32_t> images);
std::vector<uint8_t> pack_sample(const StoredSample& sample);
/// Nothing where the bytes are not what pack_sample() makes.
std::optional<StoredSample> unpack_sample(std::span<const uint8_t> bytes);
/// Ids and labels as they were, of `tokens` positions; nothing where they are others or contradict
/// one another. Without images.
std::optional<Sample> expand_sample(const StoredSample& stored, int64_t image_token,
                                    int64_t tokens);

/// An image beside its pixels: so many numbers of 64 bits.
constexpr int64_t kShapeNumbers = 9;
std::vector<int64_t> shape_numbers(const PixelImage& image);
/// Without pixels; nothing where a number is not from 0 to 2^20.
std::optional<PixelImage> image_of_numbers(std::span<const int64_t> numbers);

}  // namespace lft::data
