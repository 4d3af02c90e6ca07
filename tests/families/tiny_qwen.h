// Tiny Qwen2-VL, Qwen2.5-VL, Qwen3-VL and Qwen3.5 models, also with experts, whose weights are a
// hash of name and index, as in tests/goldens/models/make_qwen_vl.py. The only file is the golden.
#pragma once
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "kernels/common/error.h"
#include "models/family/model.h"
#include "models/qwen_vl/qwen_vl_family.h"
#include "models/qwen_vl/qwen_vl_images.h"
#include "models/registry/registry.h"

namespace lft::test::qwen_vl_test {

using Json = nlohmann::json;

inline const Json& golden() {
  static const Json json =
      Json::parse(std::ifstream(LFT_SOURCE_DIR "/tests/goldens/models/qwen_vl.json"));
  return json;
}
inline at::Tensor tensor_of(const Json& values) {
  return at::tensor(values.get<std::vector<double>>(), at::kDouble);
}

/// make_llava.py's fill().
inline at::Tensor hashed(const std::string& name, at::IntArrayRef shape) {
  uint32_t key = 2166136261u;
  for (const char c : name) key = (key ^ static_cast<unsigned char>(c)) * 16777619u;
  at::Tensor result = at::empty(shape, at::kFloat);
  const int64_t count = result.numel();
  const double a = shape.size() > 1 ? 1.5 / std::sqrt(static_cast<double>(count / shape[0])) : 0.5;
  const bool norm = name.find("norm") != std::string::npos && name.ends_with("weight");
  for (int64_t i = 0; i < count; ++i) {
    uint32_t h = (static_cast<uint32_t>(i) * 2654435761u) ^ key;
    h = (h ^ (h >> 15)) * 2246822519u;
    h = (h ^ (h >> 13)) * 3266489917u;
    h ^= h >> 16;
    result.mutable_data_ptr<float>()[i] =
        static_cast<float>((h / 4294967296.0 * 2 - 1) * a + (norm ? 1.0 : 0.0));
  }
  return result;
}

inline family::Model make_qwen(const family::ModelConfig& config) {
  const at::NoGradGuard no_grad;
  family::Model model =
      config.family->build(config, at::kFloat, at::kCPU, ops::BaseStorage::kDense);
  for (auto& item : model->named_parameters())
    item.value().copy_(hashed(item.key(), item.value().sizes()));
  return model;
}

/// The golden's photo().
inline std::vector<uint8_t> photo(int64_t width, int64_t height) {
  std::vector<uint8_t> rgb;
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      for (int64_t c = 0; c < 3; ++c)
        rgb.push_back(static_cast<uint8_t>((x * 7 + y * 13 + c * 50 + x * y % 31) % 256));
    }
  }
  return rgb;
}

inline std::shared_ptr<const family::ImageProcessor> golden_processor(
    const family::ModelConfig& config, const Json& file, const family::ImageRules& rules) {
  std::vector<std::string> notices;
  return config.family->image_processor(
      config, {.json = file, .where = "preprocessor_config.json", .folder = "golden"}, rules,
      &notices);
}

/// The golden's images in order, preprocessed by the family's processor.
inline std::vector<family::TileImage> golden_images(const family::ModelConfig& config) {
  const auto processor = golden_processor(config, golden()["processor"], {.fit = "native"});
  std::vector<family::TileImage> images;
  for (const Json& size : golden()["photos"]) {
    const int64_t width = size[0], height = size[1];
    const std::vector<uint8_t> rgb = photo(width, height);
    images.push_back(processor->make({.rgb_hwc = rgb.data(), .width = width, .height = height}));
  }
  return images;
}

/// The golden's batch: row 0 an image between text, row 1 text alone and shorter, row 2 two images.
inline family::Batch golden_batch(const family::ModelConfig& config, const Json& entry) {
  family::Batch batch;
  const auto matrix = [](const Json& rows) {
    std::vector<at::Tensor> tensors;
    for (const Json& row : rows)
      tensors.push_back(at::tensor(row.get<std::vector<int64_t>>(), at::kLong));
    return at::stack(tensors);
  };
  batch.input_ids_bt = matrix(entry["input_ids"]);
  batch.labels_bt = matrix(entry["labels"]);
  batch.lengths_b = at::tensor(entry["lengths"].get<std::vector<int64_t>>(), at::kLong);
  const auto processor = golden_processor(config, golden()["processor"], {.fit = "native"});
  const at::Tensor mean = at::tensor(processor->mean).view({3, 1}),
                   std = at::tensor(processor->std).view({3, 1});
  std::vector<at::Tensor> pixels;
  for (const family::TileImage& image : golden_images(config)) {
    const at::Tensor values = at::tensor(image.values, at::kByte).to(at::kFloat).view({3, -1});
    pixels.push_back(((values / 255 - mean) / std).flatten());
    batch.images.push_back(image.shape);
  }
  batch.pixels = at::cat(pixels);
  return batch;
}

/// The rows of a padded batch as one, without padding.
inline family::Batch packed_of(const family::Batch& padded) {
  family::Batch batch = padded;
  auto packed = std::make_shared<ops::PackedSequences>();
  packed->starts = {0};
  std::vector<at::Tensor> ids, labels;
  for (int64_t row = 0; row < padded.input_ids_bt.size(0); ++row) {
    const auto length = padded.lengths_b[row].item<int64_t>();
    ids.push_back(padded.input_ids_bt[row].narrow(0, 0, length));
    labels.push_back(padded.labels_bt[row].narrow(0, 0, length));
    packed->starts.push_back(packed->starts.back() + length);
  }
  batch.input_ids_bt = at::cat(ids).unsqueeze(0);
  batch.labels_bt = at::cat(labels).unsqueeze(0);
  batch.lengths_b = at::tensor({packed->starts.back()}, at::kLong);
  batch.packed = packed;
  return batch;
}

inline double max_difference(const at::Tensor& a, const at::Tensor& b) {
  EXPECT_EQ(a.sizes(), b.sizes());
  return a.numel() == 0 ? 0 : (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

template <class F>
ErrorInfo refusal(const F& f, ErrorKind kind) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.kind()), static_cast<int>(kind)) << error.info().what;
    return error.info();
  }
  ADD_FAILURE() << "no error";
  return {};
}

/// The cases of the golden.
class QwenVlCase : public ::testing::TestWithParam<const char*> {
 protected:
  Json entry_ = golden()["cases"][GetParam()];
  family::ModelConfig config_ = registry::parse_config(entry_["config"], "golden");
};
inline std::string case_name(const ::testing::TestParamInfo<const char*>& info) {
  return info.param;
}
constexpr const char* kCases[] = {
    "qwen2_vl",     "qwen2_vl_flat_tied",     "qwen2_5_vl", "qwen2_5_vl_flat_tied",
    "qwen3_vl",     "qwen3_vl_bias_tied",     "qwen3_5",    "qwen3_5_old_tied",
    "qwen3_vl_moe", "qwen3_vl_moe_step_tied", "qwen3_5_moe"};

}  // namespace lft::test::qwen_vl_test
