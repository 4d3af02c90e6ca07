// The support of serving programs for the contents of adapters: one table, with the versions that
// it was made for. No file is written here.
#pragma once
#include <string>
#include <vector>

#include "src/hf/adapter/adapter.h"

namespace lft::hf {

enum class Target { kPeft, kVllm, kSglang, kGguf };

/// "peft", "vllm", "sglang", "gguf"; kUsage for another.
Target target_of(const std::string& name);
std::string target_name(Target target);
/// "vLLM 0.33".
std::string client_of(Target target);

/// A part of an adapter that the client does not support as it is.
struct Finding {
  std::string what;       // "modules_to_save: multi_modal_projector"
  std::string does;       // "is refused"
  std::string remedy;     // the export's solution, or an option to set; empty: only lft merge
                          // helps
  bool blocks = false;    // no export is possible
  bool of_model = false;  // the program does not load the model, with or without an adapter
};
/// In the order of the table; empty: the client reads the adapter unchanged.
std::vector<Finding> findings(Target target, const AdapterDir& dir,
                              const family::ModelConfig& config);

/// Whether the LoRA of this module stays an adapter in the export; else it is merged into the
/// exported base.
bool stays_adapter(Target target, const std::string& module);
/// Modules of the decoder that SGLang needs in addition to these: it fuses q, k and v, and gate and
/// up, and reads no layer with some of them but without q and v, or up without gate.
std::vector<std::string> lacking_of_groups(const std::vector<std::string>& modules);
/// The smallest --max-lora-rank of vLLM that allows this rank; above all of them the rank itself.
int64_t served_rank(int64_t rank);
/// The largest rank of any module.
int64_t largest_rank(const lora::LoraOptions& lora, const std::vector<std::string>& modules);

}  // namespace lft::hf
