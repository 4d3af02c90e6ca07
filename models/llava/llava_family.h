// LLaVA-1.5, LLaVA-NeXT and LLaVA-OneVision as families, which differ in how they split an image.
#pragma once
#include "models/family/family.h"
#include "models/llava/config.h"

namespace lft::llava {

class LlavaFamily : public family::Family {
 public:
  explicit LlavaFamily(Kind kind);
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

const LlavaFamily& llava_family(Kind kind = Kind::kLlava);

}  // namespace lft::llava
