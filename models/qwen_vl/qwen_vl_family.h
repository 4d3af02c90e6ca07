// Qwen2.5-VL and Qwen3-VL as families: what differs between them is their vision part and how their
// checkpoints name it.
#pragma once
#include "models/family/family.h"
#include "models/qwen_vl/qwen_vl.h"

namespace lft::qwen_vl {

class QwenVlFamily : public family::Family {
 public:
  explicit QwenVlFamily(Generation generation) : generation_(generation) {}
  std::string name() const override;
  family::ModelConfig parse(const nlohmann::json& config, const std::string& where) const override;
  std::string fingerprint(const family::ModelConfig& config) const override;
  std::string transformers_class(const family::ModelConfig& config) const override;
  std::string oldest_transformers() const override;
  std::string processor_mark() const override;
  std::string placeholder() const override { return "<|image_pad|>"; }
  std::vector<family::TensorSpec> tensors(const family::ModelConfig& config) const override;
  std::string canonical_name(const std::string& stored,
                             const family::ModelConfig& config) const override;
  std::string stored_name(const std::string& canonical) const override;
  std::string peft_name(const std::string& canonical) const override;
  std::vector<std::string> modules_of_scope(const std::string& scope) const override;
  std::string from_peft_name(const std::string& peft) const override;
  std::vector<std::string> unused_modules(const family::ModelConfig& config) const override;
  family::Tower vision(const family::ModelConfig& config) const override;
  family::ProjectorShape projector(const family::ModelConfig& config) const override;
  family::FamilyDefaults defaults(const family::ModelConfig& config,
                                  const nlohmann::json& processor) const override;
  std::shared_ptr<const family::ImageProcessor> image_processor(
      const family::ModelConfig& config, const family::ProcessorFile& file,
      const family::ImageRules& rules, std::vector<std::string>* notices) const override;
  nlohmann::json processor_fitted(const family::ModelConfig& config, const nlohmann::json& file,
                                  const family::ImageRules& rules) const override;
  std::string unserved(family::Server server, const family::ModelConfig& config) const override;
  family::GgufForm gguf(const family::ModelConfig& config) const override;
  family::Model build(const family::ModelConfig& config, at::ScalarType dtype, at::Device device,
                      ops::BaseStorage storage) const override;

 private:
  Generation generation_;
};

const QwenVlFamily& qwen_vl_family(Generation generation);

}  // namespace lft::qwen_vl
