// Goldens: tests/goldens/make_fits.py, transformers 5.17 with torchvision. Bytes are equal, not
// approximate.
#include <gtest/gtest.h>

#include <cstdlib>

#include "data/fixtures.h"
#include "src/data/batch.h"
#include "src/data/encoded_image.h"
#include "src/data/loader.h"
#include "src/io/safetensors.h"
#include "support/expect_error.h"

namespace lft::fit_test {
using namespace lft::data;
using namespace lft::io;
using namespace lft::family;
using namespace lft::llava;
namespace {

const std::vector<float> kMean = {0.48145466f, 0.4578275f, 0.40821073f};

std::vector<uint8_t> bytes_of(const SafetensorsFile& file, const TensorInfo& info) {
  std::vector<uint8_t> bytes(info.bytes);
  file.read(info, bytes.data());
  return bytes;
}

RgbImage input_of(const SafetensorsFile& file, const std::string& name) {
  const TensorInfo& info = file.info(name + ".input");
  const std::vector<uint8_t> bytes = bytes_of(file, info);
  return {info.shape[1], info.shape[0], Pixels(bytes.begin(), bytes.end())};
}

PixelImage fit_to(const RgbImage& image, int64_t size, const std::string& fit) {
  const auto processor = test::squares(test::small_config(size), fit, kMean);
  return fit_image(image, processor->plan({image.width, image.height}), *processor, "image");
}

int largest_difference(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
  int largest = a.size() == b.size() ? 0 : 256;
  for (size_t i = 0; largest < 256 && i < a.size(); ++i)
    largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

TEST(Fit, EqualsTransformers) {
  const SafetensorsFile file(LFT_SOURCE_DIR "/tests/goldens/fits/fits.safetensors");
  int compared = 0;
  for (const auto& [name, info] : file.tensors()) {
    const size_t size_dot = name.rfind('.'), fit_dot = name.rfind('.', size_dot - 1);
    if (info.dtype != DType::kU8 || name.ends_with(".input")) continue;
    const std::string fit = name.substr(fit_dot + 1, size_dot - fit_dot - 1);
    const PixelImage pixels = fit_to(input_of(file, name.substr(0, fit_dot)), info.shape[1], fit);
    EXPECT_EQ(largest_difference(pixels.chw, bytes_of(file, info)), 0) << name;
    ++compared;
  }
  EXPECT_EQ(compared, 18);
}

TEST(Fit, NormalisedEqualsTransformers) {
  const SafetensorsFile file(LFT_SOURCE_DIR "/tests/goldens/fits/fits.safetensors");
  const TensorInfo& info = file.info("normalised.astronaut_wide.pad.17");
  std::vector<float> expected(static_cast<size_t>(info.numel()));
  file.read(info, expected.data());
  EncodeOptions options = test::small_options();
  options.images = test::squares(test::small_config(17), "pad", kMean);
  Sample sample;
  sample.input_ids = {1};
  sample.images.push_back(fit_to(input_of(file, "astronaut_wide"), 17, "pad"));
  const family::Batch batch = collate({sample}, options, at::kCPU);
  ASSERT_EQ(batch.pixels.sizes(), (std::vector<int64_t>{1, 3, 17, 17}));
  const float* got = batch.pixels.const_data_ptr<float>();
  EXPECT_EQ(std::vector<float>(got, got + expected.size()), expected);
}

TEST(Fit, RefusesWhatWouldFillTheMemory) {
  const RgbImage line{40000, 1, Pixels(120000)};
  EXPECT_LFT_ERROR(ErrorKind::kInput, "40000x1", fit_to(line, 336, "pad"));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "40000x1", fit_to(line, 336, "crop"));
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "squash", fit_to(line, 336, "squash"));
}

}  // namespace
}  // namespace lft::fit_test
