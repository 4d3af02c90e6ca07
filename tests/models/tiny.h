// Tiny LLaVA models whose weights are a hash of name and index, as
// in tests/goldens/models/make_llava.py. The only file is the golden.
#pragma once
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "kernels/common/error.h"
#include "support/llava.h"

namespace lft::layers {}
namespace lft::llama {}
namespace lft::lora {}
namespace lft::ops {}

namespace lft::test {
using namespace lft::layers;
using namespace lft::llama;
using namespace lft::family;
using namespace lft::llava;
using namespace lft::lora;
using namespace lft::ops;

using Json = nlohmann::json;

/// Uniform in [-a, a): a = 1.5 / sqrt(fan-in), 0.5 for vectors; 1 is added to the weights of norms.
inline at::Tensor fill_by_hash(const std::string& name, at::IntArrayRef shape) {
  uint32_t key = 2166136261u;
  for (const char c : name) key = (key ^ static_cast<unsigned char>(c)) * 16777619u;
  at::Tensor result = at::empty(shape, at::kFloat);
  const int64_t count = result.numel();
  const double a = shape.size() > 1 ? 1.5 / std::sqrt(static_cast<double>(count / shape[0])) : 0.5;
  const double offset =
      name.find("norm") != std::string::npos && name.ends_with("weight") ? 1.0 : 0.0;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t h = (static_cast<uint32_t>(i) * 2654435761u) ^ key;
    h = (h ^ (h >> 15)) * 2246822519u;
    h = (h ^ (h >> 13)) * 3266489917u;
    h ^= h >> 16;
    result.mutable_data_ptr<float>()[i] =
        static_cast<float>((h / 4294967296.0 * 2 - 1) * a + offset);
  }
  return result;
}

inline Model make_llava(const family::ModelConfig& config, at::ScalarType dtype = at::kFloat) {
  const at::NoGradGuard no_grad;
  Model model = build_model(config, dtype);
  for (auto& item : model->named_parameters())
    item.value().copy_(fill_by_hash(item.key(), item.value().sizes()));
  return model;
}

/// The values of the golden's adapters, overwriting inject_lora's random ones.
inline void fill_adapters(Model& model) {
  const at::NoGradGuard no_grad;
  for (auto& item : model->named_parameters()) {
    std::string name = item.key();
    const size_t infix = name.find(".adapter.");
    if (infix == std::string::npos) continue;
    name = name.substr(0, infix) + "." + name.substr(infix + 9) + ".weight";
    item.value().copy_(fill_by_hash(name, item.value().sizes()));
  }
}

inline Json tiny_json() {
  return Json::parse(R"({"model_type": "llava", "image_token_index": 60, "vision_feature_layer": -2,
    "text_config": {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, )"
                     R"("num_attention_heads": 4, "num_key_value_heads": 2,
                    "vocab_size": 64, "max_position_embeddings": 128},
    "vision_config": {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3, )"
                     R"("num_attention_heads": 2, "image_size": 18,
                      "patch_size": 6}})");
}
inline family::ModelConfig tiny_config() { return llava::parse_llava(tiny_json(), "tiny"); }

/// Row 0: an image between text. Row 1: text only, shorter. Row 2: two images. As in the golden's
/// generator.
inline family::Batch tiny_batch(const family::ModelConfig& config) {
  const auto positions = static_cast<size_t>(positions_of(config));
  const std::vector<int64_t> image(positions, config.image_token);
  std::vector<std::vector<int64_t>> rows = {{1, 5, 9}, {1, 20, 21, 22, 2}, {1}};
  rows[0].insert(rows[0].end(), image.begin(), image.end());
  for (const int64_t id : {7, 8, 2, 11, 3}) rows[0].push_back(id);
  rows[2].insert(rows[2].end(), image.begin(), image.end());
  rows[2].push_back(4);
  rows[2].insert(rows[2].end(), image.begin(), image.end());
  for (const int64_t id : {33, 34, 2}) rows[2].push_back(id);
  const auto width = static_cast<int64_t>(std::max(rows[0].size(), rows[2].size()));
  family::Batch batch;
  batch.input_ids_bt = at::zeros({3, width}, at::kLong);
  batch.labels_bt = at::full({3, width}, -100, at::kLong);
  batch.lengths_b = at::zeros({3}, at::kLong);
  for (int64_t r = 0; r < 3; ++r) {
    const auto& row = rows[static_cast<size_t>(r)];
    const auto length = static_cast<int64_t>(row.size());
    batch.lengths_b[r] = length;
    for (int64_t i = 0; i < length; ++i) {
      const int64_t id = row[static_cast<size_t>(i)];
      batch.input_ids_bt[r][i] = id;
      const bool supervised = r == 1 ? i == 2 || i == 4 : i >= length - (r == 0 ? 3 : 2);
      if (supervised) batch.labels_bt[r][i] = id;
    }
  }
  batch.pixels =
      fill_by_hash("pixels", {3, 3, vision_of(config).image_size, vision_of(config).image_size});
  return batch;
}

inline double max_abs_diff(const at::Tensor& a, const at::Tensor& b) {
  EXPECT_EQ(a.sizes(), b.sizes());
  return a.numel() == 0 ? 0 : (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}
/// |a - b| / |b|, in Frobenius norms.
inline double relative_error(const at::Tensor& a, const at::Tensor& b) {
  EXPECT_EQ(a.sizes(), b.sizes());
  const at::Tensor wide = b.to(at::kDouble);
  return ((a.to(at::kDouble) - wide).norm() / (wide.norm() + 1e-30)).item<double>();
}

template <class F>
ErrorInfo error_of(const F& f, ErrorKind kind) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.kind()), static_cast<int>(kind)) << error.info().what;
    return error.info();
  }
  ADD_FAILURE() << "no error";
  return {};
}

}  // namespace lft::test
