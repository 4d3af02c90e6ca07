// Writes a PEFT adapter from tensors in memory, with the module names of one version of
// transformers.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "src/hf/adapter/adapter.h"

namespace lft::hf {

/// Names of the keys: kD1 of transformers up to 4.51, kD2 from 4.52, kD3 from 5.6 on. kEvery: LoRA
/// in kD2, which PEFT maps to the others, and full tensors in kD3, which it does not map.
enum class Dialect { kEvery, kD1, kD2, kD3 };

/// Tensors are float32 on the CPU. `lora`: the config's options; `notes`: base and training.
struct AdapterContents {
  lora::LoraOptions lora;
  std::map<std::string, lora::NamedTensors> tensors = {};  // by canonical module
  std::map<std::string, at::Tensor> full = {};             // by canonical tensor
  std::vector<std::string> modules_to_save = {};           // PEFT's names of the modules of `full`
  AdapterNotes notes;
  std::string folder = {};  // path of later use, if that is not where it is written
};

/// Writes the two files of PEFT, lft_adapter.json and README.md, atomically. If the base ties LM
/// head and embedding, a full embedding is also saved as the head, since PEFT would keep the head
/// of the base. Throws kUsage without LoRA, which PEFT does not open.
void write_adapter(const std::string& path, const AdapterContents& contents,
                   const family::ModelConfig& config, Dialect dialect = Dialect::kEvery);

}  // namespace lft::hf
