// A prepared sample and its images as bytes: ids of 32 bits, runs of labels, image positions as
// runs, packed pixels. Data that is read back is checked for consistency.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/data/store/sample.h"

namespace lft::data {

/// One sample; `images` are the numbers of stored images, `row` is the text of row_to_json().
struct StoredSample {
  std::string id, row;
  std::vector<int32_t> ids;         // a run of image tokens is one id
  std::vector<int32_t> labels;      // pairs: the first supervised index of `ids`, and a count
  std::vector<int32_t> image_runs;  // positions of each image token in `ids`
  std::vector<int32_t> images;
};

StoredSample store_sample(const Sample& sample, std::string row, int64_t image_token,
                          std::vector<int32_t> images);
std::vector<uint8_t> pack_sample(const StoredSample& sample);
/// Empty if the bytes are no output of pack_sample().
std::optional<StoredSample> unpack_sample(std::span<const uint8_t> bytes);
/// The sample with `tokens` positions, without images; empty if the number differs or the parts
/// contradict each other.
std::optional<Sample> expand_sample(const StoredSample& stored, int64_t image_token,
                                    int64_t tokens);

/// The number of 64-bit numbers that describe an image in addition to its pixels.
constexpr int64_t kShapeNumbers = 9;
std::vector<int64_t> shape_numbers(const PixelImage& image);
/// The image without pixels; empty if a number is not in [0, 2^20].
std::optional<PixelImage> image_of_numbers(std::span<const int64_t> numbers);

}  // namespace lft::data
