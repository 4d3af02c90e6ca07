// Merges an adapter into its base, from files to files.
#pragma once
#include <functional>
#include <set>
#include <string>

#include "src/hf/adapter/adapter.h"
#include "src/io/safetensors.h"

namespace lft::hf {

struct MergeReport {
  int64_t tensors_merged = 0, shards = 0;
  std::set<io::DType> dtypes;  // of the merged tensors
  bool sees_as_before = true;  // all merged tensors are in the decoder
  bool unties = false;         // the LM head is a separate tensor, unlike in the base
};

/// A partial merge of an adapter.
struct MergePart {
  /// Selects the modules whose LoRA is merged, by canonical name; fully fine-tuned tensors are
  /// always merged.
  std::function<bool(const std::string&)> takes = nullptr;  // null: all
  bool in_float32 = false;                                  // changed tensors are written in F32
};

/// Streams the shards of the base to `out` and adds FP32 deltas with one cast; copies the files of
/// tokenizer and processor, and writes the notes of the adapter. Throws kUsage if `out` is inside
/// an input, kInput if the adapter is a no-op or does not fit. Does not compare logits (the merge
/// command does). `poll` is called between tensors; if it throws, no output remains.
MergeReport merge_to_dir(const std::string& model_path, const std::string& adapter_path,
                         const std::string& out, const std::function<void()>& poll = nullptr,
                         const MergePart& part = {});

}  // namespace lft::hf
