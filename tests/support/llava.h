// LLaVA's family, called as tests need it.
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/llava/llava.h"
#include "models/llava/llava_family.h"

namespace lft::test {

inline std::vector<family::TensorSpec> tensors_of(const family::ModelConfig& config) {
  return config.family->layout(config).tensors;
}

inline int64_t positions_of(const family::ModelConfig& config) {
  return llava::fields(config).image_positions({});
}

inline const clip::ClipConfig& vision_of(const family::ModelConfig& config) {
  return llava::fields(config).vision;
}

inline llava::LlavaImpl& as_llava(const family::Model& model) {
  return dynamic_cast<llava::LlavaImpl&>(*model);
}

inline family::Model build_model(const family::ModelConfig& config, at::ScalarType dtype,
                                 at::Device device = at::kCPU,
                                 ops::BaseStorage storage = ops::BaseStorage::kDense) {
  return config.family->build(config, dtype, device, storage);
}

/// A processor for the model's image size. Without numbers: CLIP's.
inline std::shared_ptr<const family::ImageProcessor> squares(const family::ModelConfig& config,
                                                             const std::string& fit = "pad",
                                                             std::vector<float> mean = {},
                                                             std::vector<float> std = {}) {
  nlohmann::json file = nlohmann::json::object();
  if (!mean.empty()) file["image_mean"] = mean;
  if (!std.empty()) file["image_std"] = std;
  std::vector<std::string> notices;
  return config.family->image_processor(config, {.json = file, .where = "test", .folder = "test"},
                                        {.fit = fit}, &notices);
}

}  // namespace lft::test
