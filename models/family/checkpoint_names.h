// The names of a family's modules and tensors outside lft, in checkpoints, in transformers and in
// PEFT's adapters, as tables of prefixes. Names in lft are canonical (names.h).
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "models/family/config.h"

namespace lft::family {

/// A name that is `from`, or starts with it and a dot, is renamed: `to`, and the rest of the name.
struct NameRule {
  std::string from, to;  // an empty `to`: the model has no such part
  bool exact = false;    // the rule applies to `from` only
};

/// In each table the first rule that matches is used.
struct CheckpointNames {
  std::vector<NameRule> canonical;   // from every spelling that is read; other names are unknown
  std::vector<NameRule> stored;      // from canonical names to those of a checkpoint, if different
  std::vector<NameRule> peft;        // from canonical names to those of transformers >= 5.0
  std::vector<NameRule> newest;      // exceptions to `peft` in transformers >= 5.6
  std::vector<std::string> ignored;  // endings of tensors that a checkpoint may contain, unused
  std::vector<std::string> ignored_parts;                  // modules of the same
  std::map<std::string, std::vector<std::string>> scopes;  // modules by scope, for modules_to_save
  std::vector<std::string> experts;  // endings of the names of modules of experts, whose weight is
                                     // stored under the name of the module
  bool experts_transposed = false;   // may be stored as [experts, in, out]
  bool experts_apart = false;        // may be stored as gate_proj, up_proj and down_proj of each

  /// Whether this is the canonical name of a module of experts.
  bool is_experts(std::string_view module) const;
  /// Whether this is the canonical name of the weight of one.
  bool is_expert_weight(std::string_view name) const;
  /// The canonical name of a tensor of a checkpoint; "" for one to ignore (also the LM head if it
  /// is tied); the name itself if it is not the model's.
  std::string canonical_name(const std::string& stored, const ModelConfig& config) const;
  /// The name of a module or tensor in a checkpoint.
  std::string stored_name(const std::string& name) const;
  /// The name of a module in transformers >= 5.0 (PEFT dialect D2 prepends "base_model.model.").
  std::string peft_name(const std::string& name) const;
  /// The name of a tensor of a fully fine-tuned module, which PEFT does not rename when it loads an
  /// adapter: that of the newest transformers.
  std::string whole_name(const std::string& name) const;
  /// The canonical module name of a PEFT key's module part in any dialect; "" if it is unknown.
  std::string from_peft_name(const std::string& peft) const;
  /// The canonical name of a tensor, which is the weight if PEFT's key is a module of experts.
  std::string tensor_of_peft(const std::string& peft) const;
  /// PEFT's names of the modules of a scope (llm, projector, vision), for modules_to_save.
  std::vector<std::string> modules_of_scope(const std::string& scope) const;

 private:
  /// Without the end of the weight of experts.
  std::string as_stored(const std::string& name) const;
};

/// The names of a model with LLaVA's layout: canonical names on disk, and from transformers 4.52 on
/// the parts are below "model", with the LM head next to it.
CheckpointNames llava_layout_names();

}  // namespace lft::family
