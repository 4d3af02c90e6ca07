#include "src/debug/inspect/summary_ops.h"

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <torch/library.h>

#include <optional>
#include <string_view>
#include <tuple>
#include <vector>

#include "models/base/call.h"

namespace lft::debug {
namespace {

/// Product of two matrices, or of two batches of them.
int64_t product_size(const at::Tensor& a, const at::Tensor& b) { return a.numel() * b.size(-1); }

int64_t attention_size(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  return q.numel() * k.size(-2) + q.numel() / q.size(-1) * k.size(-2) * v.size(-1);
}

int64_t multiply_adds(const at::RecordFunction& fn) {
  const std::string_view op = fn.name();
  const auto in = fn.inputs();
  if (op == "aten::mm" || op == "aten::bmm")
    return product_size(in[0].toTensor(), in[1].toTensor());
  if (op == "aten::addmm" || op == "aten::addmm_" || op == "aten::baddbmm")
    return product_size(in[1].toTensor(), in[2].toTensor());
  if (op == "aten::linalg_solve_triangular")  // half of a product
    return product_size(in[0].toTensor(), in[1].toTensor()) / 2;
  if (op == "aten::scaled_dot_product_attention")
    return attention_size(in[0].toTensor(), in[1].toTensor(), in[2].toTensor());
  return 0;
}

// LibTorch implements the shapes of these only in Python.

at::Tensor meta_index_select(const at::Tensor& x, int64_t dim, const at::Tensor& index) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.at(static_cast<size_t>(at::maybe_wrap_dim(dim, x.dim()))) = index.numel();
  return at::empty(sizes, x.options());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> meta_layer_norm(const at::Tensor& x,
                                                               at::IntArrayRef shape,
                                                               const std::optional<at::Tensor>&,
                                                               const std::optional<at::Tensor>&,
                                                               double) {
  std::vector<int64_t> sizes = x.sizes().vec();
  for (size_t i = sizes.size() - shape.size(); i < sizes.size(); ++i) sizes[i] = 1;
  return {at::empty(x.sizes(), x.options()), at::empty(sizes, x.options()),
          at::empty(sizes, x.options())};
}

at::Tensor meta_attention(const at::Tensor& q, const at::Tensor&, const at::Tensor& v,
                          const std::optional<at::Tensor>&, double, bool, std::optional<double>,
                          bool) {
  std::vector<int64_t> sizes = q.sizes().vec();
  sizes.back() = v.size(-1);
  return at::empty(sizes, q.options());
}

at::Tensor meta_solve_triangular(const at::Tensor&, const at::Tensor& b, bool, bool, bool) {
  return at::empty(b.sizes(), b.options());
}

TORCH_LIBRARY_IMPL(aten, Meta, library) {
  library.impl("index_select", &meta_index_select);
  library.impl("native_layer_norm", &meta_layer_norm);
  library.impl("linalg_solve_triangular", &meta_solve_triangular);
  library.impl("scaled_dot_product_attention", &meta_attention);
}

struct Counted : at::ObserverContext {};

}  // namespace

std::unique_ptr<at::ObserverContext> ProductCount::op_starts(const at::RecordFunction& fn) {
  const int64_t size = current_ == nullptr ? 0 : multiply_adds(fn);
  if (size == 0) return nullptr;
  if (current_->inside_++ == 0) current_->by_module_[current_module_path()] += size;
  return std::make_unique<Counted>();
}

void ProductCount::op_ends(const at::RecordFunction&, at::ObserverContext* counted) {
  if (current_ != nullptr && counted != nullptr) --current_->inside_;
}

ProductCount::ProductCount() {
  current_ = this;
  handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&op_starts, &op_ends)
                                           .needsInputs(true)
                                           .scopes({at::RecordScope::FUNCTION}));
}

ProductCount::~ProductCount() {
  at::removeCallback(handle_);
  current_ = nullptr;
}

}  // namespace lft::debug
