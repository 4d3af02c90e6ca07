// The interface of a model family for the rest of lft: its config.json, tensors, images and model.
// models/registry has a line for each model_type.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "models/family/checkpoint_names.h"
#include "models/family/config.h"
#include "models/family/image_processor.h"
#include "models/family/layout.h"
#include "models/family/processor_file.h"
#include "models/ops/weight/base_storage.h"

namespace lft::family {

class ModelImpl;  // model.h
using Model = std::shared_ptr<ModelImpl>;

/// Defaults where neither the recipe nor the command line has a value.
struct FamilyDefaults {
  std::string template_name, image_fit;
};

/// The constant properties of a family.
struct FamilyFacts {
  std::string name;  // "LLaVA", for messages
  CheckpointNames names;
  std::string processor_mark = "<image>";  // an image in a prompt for transformers' processor
  std::string placeholder = "<image>";     // the part of the mark that the processor replaces
  bool writes_prompts = false;  // the checkpoints' own code writes prompts: a chat template that
                                // writes no placeholder is not theirs
  std::string
      why_not_graphable;  // why passes with equally many images differ, so that no CUDA graph
                          // can be replayed: the end of a sentence; empty: they do not differ
};

/// One stateless object per family. Thread-safe.
class Family : public FamilyFacts {
 public:
  virtual ~Family() = default;
  /// Throws kInput naming the field that is out of range or not supported. `where` is the path of
  /// the file, for the message.
  virtual ModelConfig parse(const nlohmann::json& config, const std::string& where) const = 0;
  /// Everything in the config that changes the model's output, as text. Equal for equal models,
  /// whether defaults are written out or not.
  virtual std::string fingerprint(const ModelConfig& config) const = 0;
  virtual VisionFacts vision(const ModelConfig& config) const = 0;
  /// Read from the module tree on the meta device: no memory is allocated for weights.
  ModelLayout layout(const ModelConfig& config) const;
  /// `processor`: the model's image processor file, an object; empty if the model has none.
  virtual FamilyDefaults defaults(const ModelConfig& config,
                                  const nlohmann::json& processor) const = 0;
  /// Each notice is one line for the user. Throws kInput for a processing step that lft does not
  /// implement, kUsage for an image_fit that the family does not support.
  virtual std::shared_ptr<const ImageProcessor> image_processor(
      const ModelConfig& config, const ProcessorFile& file, const ImageRules& rules,
      std::vector<std::string>* notices) const = 0;
  /// The image processor file `file`, an object, changed so that transformers' processor applies
  /// the rules used in training.
  virtual nlohmann::json processor_fitted(const ModelConfig& config, const nlohmann::json& file,
                                          const ImageRules& rules) const;
  virtual Model build(const ModelConfig& config, at::ScalarType dtype, at::Device device,
                      ops::BaseStorage storage) const = 0;

 protected:
  explicit Family(FamilyFacts facts) : FamilyFacts(std::move(facts)) {}
};

/// The plan of an image of 640x480 without a processor file, for estimates made without data.
ImagePlan reference_image_plan(const ModelConfig& config);

}  // namespace lft::family
