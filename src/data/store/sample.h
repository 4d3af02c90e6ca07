// A training sample as the arrays that a model reads. Plain data.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/family/image_processor.h"

namespace lft::data {

/// The output of the model's processor for an image, before normalisation: uint8, tile after tile,
/// each [3, height, width].
struct PixelImage {
  family::ImageShape shape;
  std::vector<uint8_t> chw = {};
  int64_t positions = 0, tower_positions = 0;  // positions in the text and in the vision tower
};

/// The label of a position without a loss, as PyTorch's ignore_index.
constexpr int64_t kIgnoreIndex = -100;

/// Tokenised, with image positions expanded. labels[i] is input_ids[i] or kIgnoreIndex.
struct Sample {
  std::string id;
  std::vector<int64_t> input_ids, labels;
  std::vector<PixelImage> images;
  bool special_read = false;  // a special token in the row's own words was read as the token
  int32_t source = 0;         // index in data.train, where it is a list
  double reference = NAN;     // its sum of log-probabilities under the reference
  std::optional<bool> desirable = {};  // of a row of KTO: its label
  double mismatched_reference = NAN;   // like reference, with the next row's answer instead
  std::vector<Sample> rejected = {};   // of a pair: its other answer, until the loader puts it next
                                       // to this one
  int64_t shared = 0;                  // of a pair's other answer: shared_prompt()
  int64_t supervised() const {
    return std::ranges::count_if(labels, [](int64_t label) { return label != kIgnoreIndex; });
  }
};

/// The cost of a sample or of both sides of a pair, known without pixels. tokens: image positions
/// expanded, after truncation; `longest`: of the longer side; `shared`: those that a pass computes
/// once for both sides. cut: supervised tokens that truncation removed; 0 for prepared samples.
/// reading: peak memory in bytes while its largest image is decoded; 0 for prepared samples.
struct SampleLength {
  int32_t tokens = 0, supervised = 0, images = 0, cut = 0;
  int32_t longest = 0, sides = 1, shared = 0;
  int64_t reading = 0;
  int64_t values = 0, tower = 0, placed = 0;  // sums over its images: pixel values, positions in
                                              // the vision tower (of a pair's images once) and in
                                              // the text (of shared positions once)
  void add_image(const family::ImagePlan& plan) {
    values += plan.shape.values();
    tower += plan.tower_positions;
    placed += plan.positions();
  }
  /// Positions of a packed pass.
  int32_t packed() const { return tokens - shared; }
  /// The other side of the pair has the same images, which the tower sees once.
  void share_images() { values = tower = 0; }
  /// Adds the other side of a pair.
  void add_side(const SampleLength& other) {
    tokens += other.tokens;
    shared += other.shared;
    supervised += other.supervised;
    images += other.images;
    cut += other.cut;
    longest = std::max(longest, other.longest);
    ++sides;
    reading = std::max(reading, other.reading);
    values += other.values;
    tower += other.tower;
    placed += other.shared > 0 ? 0 : other.placed;
  }
  /// Replaces each number by the larger one.
  void raise_to(const SampleLength& other) {
    const auto raise = [](auto& number, auto least) { number = std::max(number, least); };
    const int32_t in_a_pass = std::max(packed(), other.packed());
    raise(tokens, other.tokens);
    shared = tokens - in_a_pass;
    raise(longest, other.longest);
    raise(sides, other.sides);
    raise(supervised, other.supervised);
    raise(images, other.images);
    raise(reading, other.reading);
    raise(values, other.values);
    raise(tower, other.tower);
    raise(placed, other.placed);
  }
};

}  // namespace lft::data
