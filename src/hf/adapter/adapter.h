// PEFT adapter directories: adapter_config.json and adapter_model.safetensors. Writes dialect D2
// with the portable config keys; reads D1, D2, D3.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "models/family/input_settings.h"
#include "models/lora/inject.h"
#include "src/hf/model_dir.h"
#include "src/io/json.h"
#include "src/text/tokenizer.h"

namespace lft::hf {

inline constexpr const char* kChatTemplate = "chat_template.jinja";  // in an adapter's folder

/// The notes that lft writes next to the two files of PEFT (lft_adapter.json), and next to a merged
/// or fully fine-tuned model (lft_model.json): how it was trained, for generate, eval, score and
/// merge.
struct AdapterNotes {
  std::string base_path = {}, base_fingerprint = {};
  family::InputSettings input = {};     // template_name: a named form, or the template's file
  std::string chat_template = {};       // the text of chat_template.jinja
  text::TokenizerParts tokenizer = {};  // those of the training; empty: not recorded
};

struct AdapterDir {
  std::string path;
  lora::LoraOptions lora;
  /// Canonical names of the modules with A and B, from the tensor keys. For the token embedding A
  /// and B are those of a linear layer with the same weight: the transposed lora_embedding_B and _A
  /// of PEFT.
  std::vector<std::string> lora_modules;
  std::vector<std::string> full_tensors;     // canonical names of modules_to_save tensors
  std::vector<std::string> modules_to_save;  // as in adapter_config.json
  /// The name of each tensor in the file, by "<module>." and the stored name of the variant's
  /// tensor ("<module>.lora_A.weight"), by the name of a full tensor, or by
  /// "<module>.base_layer.weight" (a copy of the base's weight, which PEFT stores with LoRA on LM
  /// head or embedding and with save_embedding_layers; it must equal the base).
  std::map<std::string, std::string> stored_names;
  std::string base_model_name_or_path;
  bool inference_mode = true;
  bool named_by_pattern = false;  // target_modules is a regular expression, not a list of names
  bool parts = false;             // written by save_parts(): no LoRA, not readable by PEFT
  bool ensures_tie = false;       // ensure_weight_tying: PEFT ties the adapter like the base
  bool one_table = false;         // LM head and embedding are one full tensor with two names
  AdapterNotes notes;             // at most a template if lft did not write the directory

  /// The path of the file with the tensors.
  std::string weights() const;

  /// Throws kInput: unknown key, A without B, a rank that contradicts the config, or an unsupported
  /// config key whose value differs from PEFT's default.
  static AdapterDir open(const std::string& path);
};

/// Throws kInput if the adapter records the fingerprint of another base. Adapters that lft did not
/// write record none.
void check_adapter_base(const AdapterDir& dir, const ModelDir& base);

}  // namespace lft::hf
