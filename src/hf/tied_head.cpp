#include "src/hf/tied_head.h"

#include <ATen/core/Tensor.h>

#include <algorithm>

#include "src/base/log.h"
#include "src/hf/weights.h"

namespace lft::hf {
namespace {

/// Compares some rows at a time; tensors of non-weight types are left to the dtype check.
bool same_numbers(const ModelDir& dir, const ModelDir::Place& one, const ModelDir::Place& other) {
  const io::TensorInfo &a = dir.info(one), &b = dir.info(other);
  if (a.shape != b.shape) return false;
  if (!is_weight_dtype(a.dtype) || !is_weight_dtype(b.dtype) || a.shape.empty()) return true;
  constexpr int64_t kPiece = 1 << 22;  // elements
  const int64_t rows = a.shape.front(), width = a.numel() / std::max<int64_t>(1, rows);
  const int64_t step = std::max<int64_t>(1, kPiece / std::max<int64_t>(1, width));
  for (int64_t first = 0; first < rows; first += step) {
    const int64_t count = std::min(step, rows - first);
    const at::Tensor left = read_rows(dir.files[one.file], a, first, count),
                     right = read_rows(dir.files[other.file], b, first, count);
    if (!left.to(at::kFloat).equal(right.to(at::kFloat))) return false;
  }
  return true;
}

}  // namespace

void settle_tied_head(ModelDir& dir) {
  if (!dir.tied_head) return;
  const ModelDir::Place head = *dir.tied_head;
  const auto [embedding, alone] = dir.tensors.try_emplace(kEmbedding + ".weight", head);
  if (alone) dir.tied_head.reset();
  if (alone || same_numbers(dir, head, embedding->second)) return;
  dir.tied_head.reset();
  dir.tensors[kHead + ".weight"] = head;
  dir.config.text.tie_embeddings = false;
  warning_once("config.json ties the LM head to the embedding, but the weights differ: " +
               head.stored_name + " is read as the LM head, as transformers does; set " +
               "tie_word_embeddings to false in config.json");
}

}  // namespace lft::hf
