// What each program that serves adapters does with what an adapter holds: the one table, with the
// versions that it was read from. No file is written here.
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

/// Something of an adapter that the client does not take as it stands.
struct Finding {
  std::string what;     // "modules_to_save: multi_modal_projector"
  std::string does;     // "is refused"
  std::string remedy;   // what an export makes of it, or what to set; empty: nothing helps but
                        // lft merge
  bool blocks = false;  // no export takes it either
};
/// In the order of the table; none: the client reads the adapter as it is.
std::vector<Finding> findings(Target target, const AdapterDir& dir,
                              const family::ModelConfig& config);

/// Whether the LoRA of this module stays an adapter in what is exported; else it is merged into the
/// base that goes with it.
bool stays_adapter(Target target, const std::string& module);
/// The modules of the decoder that SGLang needs beside these: it joins q, k and v, gate and up, and
/// reads no layer that has some of them without q and v, or up without gate.
std::vector<std::string> lacking_of_groups(const std::vector<std::string>& modules);
/// The smallest --max-lora-rank of vLLM that takes this rank; the rank itself above all of them.
int64_t served_rank(int64_t rank);
/// The largest rank of any module.
int64_t largest_rank(const lora::LoraOptions& lora, const std::vector<std::string>& modules);

}  // namespace lft::hf
