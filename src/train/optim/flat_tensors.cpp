#include "src/train/optim/flat_tensors.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <numeric>

#include "models/lora/trained_modules.h"

namespace lft::train {
namespace {

constexpr int64_t kAlignment = 8;  // elements: 16 bytes of a 16-bit type

bool is_a(const lora::Trainable& trainable) { return trainable.name.ends_with(lora::kLoraA); }

/// The trainables in memory order.
std::vector<size_t> places(const std::vector<lora::Trainable>& trainables) {
  std::vector<size_t> order(trainables.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t i, size_t j) {
    const lora::Trainable &a = trainables[i], &b = trainables[j];
    return a.scope != b.scope ? a.scope < b.scope : is_a(a) && !is_a(b);
  });
  return order;
}

}  // namespace

at::Tensor FlatTensors::of_scope(const std::string& scope) const {
  for (const Range& range : scopes) {
    if (range.scope == scope) return flat.narrow(0, range.first, range.count);
  }
  return flat.narrow(0, 0, 0);
}

FlatTensors make_flat(const std::vector<lora::Trainable>& trainables, at::ScalarType dtype) {
  FlatTensors made;
  if (trainables.empty()) return made;
  const std::vector<size_t> order = places(trainables);
  std::vector<int64_t> firsts(trainables.size());
  int64_t size = 0;
  for (const size_t i : order) {
    const lora::Trainable& trainable = trainables[i];
    if (made.scopes.empty() || made.scopes.back().scope != trainable.scope) {
      made.scopes.push_back({.scope = trainable.scope, .first = size});
    }
    firsts[i] = size;
    size += (trainable.tensor.numel() + kAlignment - 1) / kAlignment * kAlignment;
    made.scopes.back().count = size - made.scopes.back().first;
  }
  const at::TensorOptions there = trainables[0].tensor.options().requires_grad(false);
  made.flat = at::zeros({size}, there.dtype(dtype));
  for (size_t i = 0; i < trainables.size(); ++i) {
    const at::Tensor& like = trainables[i].tensor;
    const at::Tensor part = made.flat.narrow(0, firsts[i], like.numel()).view(like.sizes());
    made.parts.push_back(part.variable_data());
  }
  return made;
}

}  // namespace lft::train
