#include "src/hf/adapter/adapter_tie.h"

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/hf/adapter/adapter_files.h"
#include "src/hf/tied_head.h"

namespace lft::hf {
namespace {

bool changes(const AdapterDir& dir, const std::string& module) {
  return dir.stored_names.contains(module + ".weight") ||
         dir.stored_names.contains(module + ".lora_A.weight");
}

/// Under ensure_weight_tying PEFT trains one tensor and saves it under both names.
void check_tie(const AdapterDir& dir, bool embedding, bool head) {
  const bool whole = dir.stored_names.contains(kEmbedding + ".weight") &&
                     dir.stored_names.contains(kHead + ".weight");
  if (!dir.ensures_tie || (embedding == head && (!whole || dir.one_table))) return;
  refuse(ErrorKind::kInput, "the adapter does not contain the tie that it asks for",
         dir.weights() + ": ensure_weight_tying, over a base that ties embedding and LM head",
         embedding != head ? std::string(embedding ? "the embedding" : "the LM head") + " alone"
                           : "an embedding and an LM head that differ",
         "the same numbers for both", "save the adapter again with PEFT");
}

}  // namespace

bool unties(const AdapterDir& dir, const family::ModelConfig& base) {
  if (!base.text.tie_embeddings || dir.parts) return false;
  const bool embedding = changes(dir, kEmbedding), head = changes(dir, kHead);
  check_tie(dir, embedding, head);
  return (embedding || head) && !dir.one_table;
}

bool untie(const AdapterDir& dir, ModelDir& base) {
  if (!unties(dir, base.config)) return false;
  base.config.text.tie_embeddings = false;
  base.tensors[kHead + ".weight"] =
      base.tied_head ? *base.tied_head : base.tensors.at(kEmbedding + ".weight");
  return true;
}

}  // namespace lft::hf
