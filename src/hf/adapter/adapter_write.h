// A PEFT adapter written from tensors in memory, under the names that one version of transformers
// or another gives modules.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "src/hf/adapter/adapter.h"

namespace lft::hf {

/// Spellings of the keys: kD1 of transformers up to 4.51, kD2 from 4.52, kD3 from 5.6 on. kEvery:
/// LoRA in kD2, which PEFT maps to the others, tensors saved whole in kD3, which it does not map.
enum class Dialect { kEvery, kD1, kD2, kD3 };

/// Float32 on the CPU. `lora` is what the tensors are saved as; `notes` say whose the adapter is.
struct AdapterContents {
  lora::LoraOptions lora;
  std::map<std::string, lora::NamedTensors> tensors = {};  // by canonical module
  std::map<std::string, at::Tensor> full = {};             // by canonical tensor
  std::vector<std::string> modules_to_save = {};           // PEFT's names of the modules of `full`
  AdapterNotes notes;
  std::string folder = {};  // where it is used, if that is not where it is written
};

/// A whole embedding of a base that ties LM head and embedding is saved as the head, too: PEFT
/// keeps the base's head otherwise. Atomically: PEFT's two files, lft_adapter.json and README.md.
/// kUsage without LoRA, which PEFT does not open.
void write_adapter(const std::string& path, const AdapterContents& contents,
                   const family::ModelConfig& config, Dialect dialect = Dialect::kEvery);

}  // namespace lft::hf
