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
/// Empty strings where the model directory is not lft's.
AdapterNotes read_model_notes(const std::string& model_path);

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

/// How `base` with the adapter on it was trained: as the adapter records it, or else the base.
AdapterNotes training_notes(const AdapterDir& dir, const ModelDir& base);
/// Throws kInput when the adapter records the fingerprint of another base than `base`. Adapters
/// that are not lft's record none.
void check_adapter_base(const AdapterDir& dir, const ModelDir& base);
/// The same of another tokenizer than the one with these parts, naming what differs.
void check_adapter_tokenizer(const AdapterDir& dir, const text::TokenizerParts& parts);
/// The same of a model that records what it was trained with.
void check_model_tokenizer(const std::string& model_path, const text::TokenizerParts& parts);

/// Whether base and adapter together have an LM head that is not the embedding, although the base
/// ties them: as in PEFT, an adapter changes only what it contains. kInput where the adapter asks
/// for the tie and contains one of the two, or two that differ.
bool unties(const AdapterDir& dir, const family::ModelConfig& base);
/// Where the adapter unties the base, its head becomes a separate tensor, read from the
/// embedding's place. Returns whether it does. The base's fingerprint is another one then.
bool untie(const AdapterDir& dir, ModelDir& base);

/// For a model of a base that went through untie(). Injects adapters at dir.lora_modules and copies
/// every tensor; any unused key, unfilled adapter or wrong shape is kInput with names.
void load_adapter(family::Model& model, const AdapterDir& dir);
/// Writes to `path` (atomically): LoRA of every injected site, modules_to_save of the `full` scopes
/// (llm, projector, vision). kUsage without any LoRA, which PEFT does not open: save_parts() and
/// save_model() are for that.
void save_adapter(const std::string& path, family::Model& model, const lora::LoraOptions& lora,
                  const std::vector<std::string>& full, const AdapterNotes& notes);

/// Writes to `path` (atomically) what the `full` scopes hold, in float32 under the names of
/// transformers' state_dict; AdapterDir::open() reads it as an adapter without LoRA.
void save_parts(const std::string& path, family::Model& model, const std::vector<std::string>& full,
                const AdapterNotes& notes);

struct MergeReport {
  int64_t tensors_merged = 0, shards = 0;
  bool sees_as_before = true;  // all of them are the decoder's
  bool unties = false;         // the LM head is stored apart from the embedding, unlike the base's
};
/// A merge of a part of an adapter.
struct MergePart {
  /// By canonical name: the modules whose LoRA is merged, beside all that is trained whole.
  std::function<bool(const std::string&)> takes = nullptr;  // null: all
  bool in_float32 = false;  // what changes is written in F32, whatever the base has
};
/// Streams base shards to `out`, adding FP32 deltas with one cast; copies tokenizer and processor
/// files. Refuses `out` inside an input (kUsage), an adapter that is a no-op or does not fit
/// (kInput). The adapter's notes go with the model. Does not compare logits (the merge command
/// does). `poll` runs between tensors; what it throws leaves no output behind.
MergeReport merge_to_dir(const std::string& model_path, const std::string& adapter_path,
                         const std::string& out, const std::function<void()>& poll = nullptr,
                         const MergePart& part = {});
/// Writes a whole model in HF layout (one safetensors file, config.json and the other files copied
/// from `source`). For full: [all].
void save_model(const std::string& path, family::Model& model, const ModelDir& source,
                const AdapterNotes& notes = {});

}  // namespace lft::hf
