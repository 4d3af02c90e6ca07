// InternVL as two families, one for each layout.
#pragma once
#include "models/family/family.h"
#include "models/internvl/config.h"

namespace lft::internvl {

class InternVlFamily : public family::Family {
 public:
  explicit InternVlFamily(Layout layout);
  family::ModelConfig parse(const nlohmann::json& config, const std::string& where) const override;
  std::string fingerprint(const family::ModelConfig& config) const override;
  family::VisionFacts vision(const family::ModelConfig& config) const override;
  family::FamilyDefaults defaults(const family::ModelConfig& config,
                                  const nlohmann::json& processor) const override;
  nlohmann::json processor_fitted(const family::ModelConfig& config, const nlohmann::json& file,
                                  const family::ImageRules& rules) const override;
  std::shared_ptr<const family::ImageProcessor> image_processor(
      const family::ModelConfig& config, const family::ProcessorFile& file,
      const family::ImageRules& rules, std::vector<std::string>* notices) const override;
  family::Model build(const family::ModelConfig& config, at::ScalarType dtype, at::Device device,
                      ops::BaseStorage storage) const override;

 private:
  Layout layout_;
};

const InternVlFamily& internvl_family(Layout layout = Layout::kTransformers);

}  // namespace lft::internvl
