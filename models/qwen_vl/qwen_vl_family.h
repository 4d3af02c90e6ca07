// Qwen2-VL, Qwen2.5-VL, Qwen3-VL and Qwen3.5 as families, the last two also as mixtures of experts.
// They differ in their vision part, in the decoder's config and in the names of their checkpoints.
#pragma once
#include "models/family/family.h"
#include "models/qwen_vl/config.h"

namespace lft::qwen_vl {

class QwenVlFamily : public family::Family {
 public:
  explicit QwenVlFamily(Kind kind);
  family::ModelConfig parse(const nlohmann::json& config, const std::string& where) const override;
  std::string fingerprint(const family::ModelConfig& config) const override;
  family::VisionFacts vision(const family::ModelConfig& config) const override;
  family::FamilyDefaults defaults(const family::ModelConfig& config,
                                  const nlohmann::json& processor) const override;
  std::shared_ptr<const family::ImageProcessor> image_processor(
      const family::ModelConfig& config, const family::ProcessorFile& file,
      const family::ImageRules& rules, std::vector<std::string>* notices) const override;
  nlohmann::json processor_fitted(const family::ModelConfig& config, const nlohmann::json& file,
                                  const family::ImageRules& rules) const override;
  family::Model build(const family::ModelConfig& config, at::ScalarType dtype, at::Device device,
                      ops::BaseStorage storage) const override;

 private:
  Kind kind_;
};

const QwenVlFamily& qwen_vl_family(Kind kind);

}  // namespace lft::qwen_vl
