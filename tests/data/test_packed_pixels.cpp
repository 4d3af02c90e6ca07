#include <gtest/gtest.h>

#include <random>

#include "src/data/store/packed_pixels.h"
#include "src/data/store/stored_sample.h"

namespace lft::packed_pixels_test {
using namespace lft::data;
namespace {

std::vector<uint8_t> noise(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> values(count);
  for (uint8_t& value : values) value = static_cast<uint8_t>(random());
  return values;
}

TEST(PackedPixels, AreWhatTheyWere) {
  const PlaneShape shapes[] = {{3, 1, 1}, {3, 5, 7}, {6, 16, 16}, {3, 1, 300}, {3, 300, 1},
                               {1, 4, 4}, {0, 8, 8}, {3, 0, 8},   {15, 9, 2}};
  for (const PlaneShape& shape : shapes) {
    for (const uint32_t seed : {1, 2}) {
      std::vector<uint8_t> pixels = noise(static_cast<size_t>(shape.values()), seed);
      if (seed == 2) std::fill(pixels.begin(), pixels.end(), uint8_t{200});
      const std::vector<uint8_t> packed = pack_pixels(pixels, shape);
      std::vector<uint8_t> again;
      ASSERT_TRUE(unpack_pixels(packed, shape, again));
      EXPECT_EQ(again, pixels);
      EXPECT_EQ(pack_pixels(pixels, shape), packed);
      PlaneShape other = shape;
      ++other.width;
      if (other.values() != shape.values()) {
        EXPECT_FALSE(unpack_pixels(packed, other, again));
      }
      if (packed.size() > 4) {
        EXPECT_FALSE(unpack_pixels(std::span(packed).first(packed.size() / 2), shape, again));
      }
    }
  }
}

/// Gradients in both directions, equal in the three colours, with a little noise: three of 8 bits.
TEST(PackedPixels, TakeLessThanHalf) {
  const PlaneShape shape{3, 128, 128};
  std::vector<uint8_t> pixels = noise(static_cast<size_t>(shape.values()), 3);
  for (int64_t i = 0; i < shape.values(); ++i) {
    const int64_t y = i / 128 % 128, x = i % 128;
    uint8_t& pixel = pixels[static_cast<size_t>(i)];
    pixel = static_cast<uint8_t>(y + x / 2 + pixel % 4);
  }
  EXPECT_LT(pack_pixels(pixels, shape).size(), pixels.size() / 2);
}

TEST(PackedPixels, AShapeThatNoMemoryHoldsIsRefused) {
  std::vector<uint8_t> out;
  EXPECT_FALSE(unpack_pixels({}, {3, 1 << 20, 1 << 20}, out));
  EXPECT_FALSE(unpack_pixels({}, {-3, 4, 4}, out));
}

TEST(StoredSample, RunsAreWhatTheyStandFor) {
  constexpr int64_t kImage = 9;
  Sample sample;
  sample.id = "one";
  sample.input_ids = {1, kImage, kImage, kImage, 4, 5, kImage, 6, 7, 8};
  sample.labels = {-100, -100, -100, -100, 4, 5, -100, 6, -100, 8};
  const StoredSample stored = store_sample(sample, "{}", kImage, {3, 3});
  EXPECT_EQ(stored.ids, (std::vector<int32_t>{1, kImage, 4, 5, kImage, 6, 7, 8}));
  EXPECT_EQ(stored.image_runs, (std::vector<int32_t>{3, 1}));
  EXPECT_EQ(stored.labels, (std::vector<int32_t>{2, 2, 5, 1, 7, 1}));
  const std::vector<uint8_t> bytes = pack_sample(stored);
  const StoredSample read = *unpack_sample(bytes);
  EXPECT_EQ(read.images, (std::vector<int32_t>{3, 3}));
  EXPECT_EQ(read.row, "{}");
  const Sample again = *expand_sample(read, kImage, 10);
  EXPECT_EQ(again.id, "one");
  EXPECT_EQ(again.input_ids, sample.input_ids);
  EXPECT_EQ(again.labels, sample.labels);
  EXPECT_FALSE(expand_sample(read, kImage, 9));
  EXPECT_FALSE(expand_sample(read, kImage, 11));
  EXPECT_FALSE(expand_sample(read, /*image_token=*/4, 10));
  for (size_t size = 0; size < bytes.size() - 2; ++size)
    EXPECT_FALSE(unpack_sample(std::span(bytes).first(size))) << size;
  const auto changed = [&](auto change) {
    StoredSample other = read;
    change(other);
    return expand_sample(other, kImage, 10).has_value();
  };
  EXPECT_FALSE(changed([](StoredSample& s) { s.labels[0] = -1; }));
  EXPECT_FALSE(changed([](StoredSample& s) { s.labels[5] = 2; }));
  EXPECT_FALSE(changed([](StoredSample& s) { s.labels[0] = 1; }));  // an image is never supervised
  EXPECT_FALSE(changed([](StoredSample& s) { s.labels.pop_back(); }));
  EXPECT_FALSE(changed([](StoredSample& s) { s.image_runs[0] = 1 << 30; }));
  EXPECT_FALSE(changed([](StoredSample& s) { s.image_runs[0] = -3; }));
  EXPECT_FALSE(changed([](StoredSample& s) { s.image_runs.pop_back(); }));
  EXPECT_FALSE(changed([](StoredSample& s) { s.image_runs.push_back(1); }));
}

}  // namespace
}  // namespace lft::packed_pixels_test
