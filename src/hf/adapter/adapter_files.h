// Reading an adapter's tensors against a model of a given config: what fits where is decided here,
// once, for loading and for merging.
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "src/hf/adapter/adapter.h"
#include "src/hf/tied_head.h"

namespace lft::hf {

/// What PEFT puts before the canonical names of its tensors.
constexpr const char* kPeftPrefix = "base_model.model.";

inline constexpr const char* kAdapterWeights = "adapter_model.safetensors";
inline constexpr const char* kPartsWeights = "parts.safetensors";
inline constexpr const char* kAdapterNotes = "lft_adapter.json";
inline constexpr const char* kModelNotes = "lft_model.json";

inline constexpr const char* kTemplateHash = "template_sha256";  // a key of the notes

/// The file's text.
std::string notes_text(const AdapterNotes& notes);
/// chat_template.jinja, where the notes have one.
void write_chat_template(const std::string& folder, const AdapterNotes& notes);
/// Empty strings where there is no such file.
AdapterNotes read_notes(const std::string& file);

/// README.md of an adapter (`rank`: with what its variant is) and of parts, each in `folder`: the
/// hub's header, whose it is, and Python that asks it as lft generate does.
std::string adapter_readme(const std::string& rank, const std::vector<std::string>& modules,
                           const AdapterNotes& notes, const family::ModelConfig& config,
                           const std::string& folder);
std::string parts_readme(const std::vector<std::string>& full, const AdapterNotes& notes,
                         const family::ModelConfig& config, const std::string& folder);

/// A folder that save_parts() wrote.
AdapterDir open_parts(const std::string& path);

/// An adapter's tensors in memory, float32 on the CPU.
struct AdapterTensors {
  std::map<std::string, lora::NamedTensors> lora;  // by canonical module
  std::map<std::string, at::Tensor> full;          // by canonical tensor
  /// Canonical tensors of the base and copies of them, which must equal the base's.
  std::vector<std::pair<std::string, at::Tensor>> base_copies;
};

/// Whether modules_to_save names a module that the tensor or module `path` (PEFT's name, without
/// its prefix) is part of: as PEFT does, by how names of modules end.
bool saves(const std::vector<std::string>& modules_to_save, const std::string& path);

/// Reads everything, for a base that went through untie(). Throws kInput for modules or tensors
/// that this model has not, wrong shapes, an incomplete module of modules_to_save, and non-finite
/// values.
AdapterTensors read_adapter(const AdapterDir& dir, const family::ModelConfig& config);
/// kInput unless the copy that the adapter holds of a base weight is that weight.
void check_base_copy(const at::Tensor& copy, const at::Tensor& base, const std::string& name,
                     const AdapterDir& dir);

}  // namespace lft::hf
