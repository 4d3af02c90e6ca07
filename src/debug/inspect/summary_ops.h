// Counts multiply-adds of matrix products and attention while a model runs, by module. It works on
// the meta device and provides the kernels that LibTorch lacks there.
#pragma once
#include <ATen/record_function.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace lft::debug {

/// Counts on this thread during its lifetime; one at a time. A product of [m, k] and [k, n] is m *
/// k * n. Attention is two products over all positions, masked or not, as in PyTorch.
class ProductCount {
 public:
  ProductCount();
  ~ProductCount();
  ProductCount(const ProductCount&) = delete;
  /// Multiply-adds by the path of the innermost call() in which they ran.
  const std::map<std::string, int64_t>& by_module() const { return by_module_; }

 private:
  static std::unique_ptr<at::ObserverContext> op_starts(const at::RecordFunction& fn);
  static void op_ends(const at::RecordFunction& fn, at::ObserverContext* counted);

  static inline ProductCount* current_ = nullptr;  // LibTorch's callbacks are plain functions
  std::map<std::string, int64_t> by_module_;
  at::CallbackHandle handle_{};
  int64_t inside_ = 0;  // inside a counted op: its parts are not counted
};

}  // namespace lft::debug
