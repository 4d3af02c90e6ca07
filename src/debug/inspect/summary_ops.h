// Multiply-adds of matrix products and attention while a model runs, by module. Works without
// memory for the tensors (the meta device), and brings the kernels that LibTorch lacks there.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace lft::debug {

/// Counts on this thread while it lives; one at a time. A product of [m, k] and [k, n] is m * k *
/// n. Attention is its two products, of all positions with all, masked or not, as PyTorch counts it
/// too.
class ProductCount {
 public:
  ProductCount();
  ~ProductCount();
  ProductCount(const ProductCount&) = delete;
  /// By the path of the innermost call() in which they ran.
  const std::map<std::string, int64_t>& by_module() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lft::debug
