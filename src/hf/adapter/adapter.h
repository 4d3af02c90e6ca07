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

/// What lft itself records beside PEFT's two files (lft_adapter.json) and beside a model that it
/// merged or trained whole (lft_model.json): how it was trained, for generate, eval, score and
/// merge.
struct AdapterNotes {
  std::string base_path = {}, base_fingerprint = {};
  family::InputSettings input = {};     // template_name: a form's name, or the template's file
  std::string chat_template = {};       // the text of chat_template.jinja
  text::TokenizerParts tokenizer = {};  // of what it was trained with; empty: not recorded
};

struct AdapterDir {
  std::string path;
  lora::LoraOptions lora;
  /// Canonical names that have A and B, from the tensor keys. Of the token embedding A and B are
  /// those of a linear layer with the same weight: PEFT's lora_embedding_B and _A, transposed.
  std::vector<std::string> lora_modules;
  std::vector<std::string> full_tensors;     // canonical names of modules_to_save tensors
  std::vector<std::string> modules_to_save;  // as the config names them
  /// Where each tensor lies in the file: "<module>." and how a tensor of the variant is stored,
  /// as in "<module>.lora_A.weight", a full tensor's name, or
  /// "<module>.base_layer.weight" (a copy of the base's weight, which PEFT stores next to LoRA on
  /// LM head or embedding, and with save_embedding_layers; must equal the base).
  std::map<std::string, std::string> stored_names;
  std::string base_model_name_or_path;
  bool inference_mode = true;
  bool named_by_pattern = false;  // target_modules is an expression, not a list of names
  bool parts = false;             // written by save_parts(): no LoRA, and nothing that PEFT opens
  bool ensures_tie = false;       // ensure_weight_tying: PEFT ties the adapter where the base ties
  bool one_table = false;  // saves LM head and embedding whole, as one tensor under two names
  AdapterNotes notes;      // empty strings where the directory is not lft's

  /// The file with the tensors.
  std::string weights() const;

  /// Throws kInput: unknown key, A without B, rank contradicting the config, a config key lft lacks
  /// at another value than PEFT's default.
  static AdapterDir open(const std::string& path);
};

/// Throws kInput when the adapter records the fingerprint of another base than `base`. Adapters
/// that are not lft's record none.
void check_adapter_base(const AdapterDir& dir, const ModelDir& base);

}  // namespace lft::hf
