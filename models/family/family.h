// What a family of models is: everything that the rest of lft asks about a config.json, its
// tensors, its names, its images and its model. A registry line for each model_type
// (models/registry).
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "models/family/image_processor.h"
#include "models/family/model.h"
#include "models/family/names.h"
#include "models/family/processor_file.h"
#include "models/family/tower.h"

namespace lft::family {

/// What `lft` does where a recipe or a command says nothing.
struct FamilyDefaults {
  std::string template_name, image_fit;
};

/// Programs that serve models, whose facts lft knows: each release loads some families only.
enum class Server { kSglang, kLlamaCpp };

struct GgufForm;  // gguf_form.h

/// One object a family, without state. All names are of modules or of tensors.
class Family {
 public:
  virtual ~Family() = default;
  virtual std::string name() const = 0;  // "LLaVA", for messages
  /// Throws kInput naming the field for anything out of range or not supported. `where` is the
  /// file's path for the message.
  virtual ModelConfig parse(const nlohmann::json& config, const std::string& where) const = 0;
  /// What the model computes with, in one text: spelling, defaults written out or not, and fields
  /// that change nothing do not count.
  virtual std::string fingerprint(const ModelConfig& config) const = 0;
  /// The class of transformers that loads it.
  virtual std::string transformers_class(const ModelConfig& config) const = 0;
  /// The oldest transformers that has it under the names that PEFT's adapters have.
  virtual std::string oldest_transformers() const { return "4.52"; }
  /// What stands in a prompt for an image that transformers' processor is given.
  virtual std::string processor_mark() const { return "<image>"; }
  /// The part of it that the processor replaces; what is around it a chat template writes.
  virtual std::string placeholder() const { return processor_mark(); }

  virtual std::vector<TensorSpec> tensors(const ModelConfig& config) const = 0;
  /// The canonical name of a tensor in an HF file, in any spelling ("" for one to ignore:
  /// position_ids, inv_freq, tied lm_head; itself for one that is none of the model's).
  virtual std::string canonical_name(const std::string& stored,
                                     const ModelConfig& config) const = 0;
  /// The name under which a checkpoint stores it.
  virtual std::string stored_name(const std::string& canonical) const = 0;
  /// The name transformers >= 5.0 gives a module in memory (PEFT dialect D2 is this after
  /// "base_model.model.").
  virtual std::string peft_name(const std::string& canonical) const = 0;
  /// Of a tensor of a module saved whole, which PEFT does not map between dialects: transformers'
  /// newest name.
  virtual std::string whole_name(const std::string& canonical) const {
    return peft_name(canonical);
  }
  /// PEFT's names of the modules that a scope (llm, projector, vision) is, for modules_to_save.
  virtual std::vector<std::string> modules_of_scope(const std::string& scope) const = 0;
  /// Canonical module name from a PEFT key's module part in any dialect; "" if it is none of them.
  virtual std::string from_peft_name(const std::string& peft) const = 0;
  /// Canonical modules that no output depends on, so that nothing in them can ever learn.
  virtual std::vector<std::string> unused_modules(const ModelConfig& config) const = 0;
  virtual std::string unused_reason(const ModelConfig& config) const {
    return "no output of it is used";
  }

  virtual Tower vision(const ModelConfig& config) const = 0;
  virtual ProjectorShape projector(const ModelConfig& config) const = 0;

  /// Why no two passes over as many images are alike, so that no CUDA graph fits both, as the end
  /// of a sentence; empty: they are.
  virtual std::string unlike_passes() const { return "images of " + name() + " differ in shape"; }
  /// `processor`: the model's image processor file, an object, empty where there is none.
  virtual FamilyDefaults defaults(const ModelConfig& config,
                                  const nlohmann::json& processor) const = 0;
  /// Made for a processor file and rules. Each notice is one line for the user. kInput for a step
  /// that lft does not take, kUsage for an image_fit that the family does not have.
  virtual std::shared_ptr<const ImageProcessor> image_processor(
      const ModelConfig& config, const ProcessorFile& file, const ImageRules& rules,
      std::vector<std::string>* notices) const = 0;
  /// `file`, an object, as the image processor file of a model that was trained with these rules:
  /// transformers' processor then follows them without being told.
  virtual nlohmann::json processor_fitted(const ModelConfig& config, const nlohmann::json& file,
                                          const ImageRules& rules) const;
  /// What transformers' processor of this family imports beyond torchvision and Pillow, by its
  /// names in PyPI, each after a space.
  virtual std::string more_packages(const ModelConfig& /*config*/) const { return {}; }
  /// Why the server does not load such a model, as a sentence; empty: it does.
  virtual std::string unserved(Server server, const ModelConfig& config) const;
  /// The model as llama.cpp's files have it, where that serves it; else kInternal.
  virtual GgufForm gguf(const ModelConfig& config) const;
  virtual Model build(const ModelConfig& config, at::ScalarType dtype, at::Device device,
                      ops::BaseStorage storage) const = 0;
};

/// What a photograph of 640x480 becomes without a processor file: where a shape is needed and there
/// is no data.
ImagePlan ordinary_image(const ModelConfig& config);

}  // namespace lft::family
