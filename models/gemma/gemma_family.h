// Gemma 3 as a family.
#pragma once
#include "models/family/family.h"
#include "models/gemma/gemma.h"

namespace lft::gemma {

class GemmaFamily : public family::Family {
 public:
  std::string name() const override { return "Gemma 3"; }
  family::ModelConfig parse(const nlohmann::json& config, const std::string& where) const override;
  std::string fingerprint(const family::ModelConfig& config) const override;
  std::string transformers_class(const family::ModelConfig& config) const override;
  std::string processor_mark() const override { return "<start_of_image>"; }
  std::vector<family::TensorSpec> tensors(const family::ModelConfig& config) const override;
  std::string canonical_name(const std::string& stored,
                             const family::ModelConfig& config) const override;
  std::string stored_name(const std::string& canonical) const override;
  std::string peft_name(const std::string& canonical) const override;
  std::vector<std::string> modules_of_scope(const std::string& scope) const override;
  std::string whole_name(const std::string& canonical) const override;
  std::string from_peft_name(const std::string& peft) const override;
  std::vector<std::string> unused_modules(const family::ModelConfig& config) const override;
  family::Tower vision(const family::ModelConfig& config) const override;
  family::ProjectorShape projector(const family::ModelConfig& config) const override;
  std::string unlike_passes() const override;
  family::FamilyDefaults defaults(const family::ModelConfig& config,
                                  const nlohmann::json& processor) const override;
  std::shared_ptr<const family::ImageProcessor> image_processor(
      const family::ModelConfig& config, const family::ProcessorFile& file,
      const family::ImageRules& rules, std::vector<std::string>* notices) const override;
  family::Model build(const family::ModelConfig& config, at::ScalarType dtype, at::Device device,
                      ops::BaseStorage storage) const override;
};

const GemmaFamily& gemma_family();

}  // namespace lft::gemma
