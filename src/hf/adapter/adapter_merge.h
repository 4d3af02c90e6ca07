// Merges an adapter into its base, from files to files.
#pragma once
#include <functional>
#include <string>

#include "src/hf/adapter/adapter.h"

namespace lft::hf {

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

}  // namespace lft::hf
