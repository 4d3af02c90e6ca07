// Checks of named dimensions at the borders of modules and ops: expect_dims(x, "x", {{"b"}, {"t"},
// {"d", 256}}). They also run in release builds: a few integer comparisons, no allocation. They
// check neither dtypes nor values.
#pragma once
#include <ATen/core/Tensor.h>

namespace lft {

constexpr int64_t kAnySize = -1;

/// A dimension by its letter or name; `name` is a string literal.
struct Dim {
  const char* name;
  int64_t size = kAnySize;
};

namespace dims_detail {
/// Throws kInternal with both shapes by name, and the path of the module that is running.
[[noreturn, gnu::cold, gnu::noinline]] void fail(const at::Tensor& x, const char* name,
                                                 const Dim* dims, size_t count, bool has_rest);
[[noreturn, gnu::cold, gnu::noinline]] void fail_like(const at::Tensor& x, const char* name,
                                                      const at::Tensor& like, Dim last);
}  // namespace dims_detail

/// x has exactly these dimensions.
template <size_t N>
inline void expect_dims(const at::Tensor& x, const char* name, const Dim (&dims)[N]) {
  const at::IntArrayRef sizes = x.sizes();
  bool fits = x.defined() && sizes.size() == N;
  for (size_t i = 0; fits && i < N; ++i)
    fits = dims[i].size == kAnySize || sizes[i] == dims[i].size;
  if (!fits) [[unlikely]]
    dims_detail::fail(x, name, dims, N, /*has_rest=*/false);
}

/// x ends with this dimension, after any others.
inline void expect_last_dim(const at::Tensor& x, const char* name, Dim last) {
  const at::IntArrayRef sizes = x.sizes();
  if (!x.defined() || sizes.empty() || (last.size != kAnySize && sizes.back() != last.size))
      [[unlikely]]
    dims_detail::fail(x, name, &last, 1, /*has_rest=*/true);
}

/// x has the dimensions of `like`, except for the last one.
inline void expect_dims_like(const at::Tensor& x, const char* name, const at::Tensor& like,
                             Dim last) {
  const at::IntArrayRef sizes = x.sizes(), others = like.sizes();
  const bool fits = x.defined() && sizes.size() == others.size() && !sizes.empty() &&
                    sizes.back() == last.size &&
                    sizes.slice(0, sizes.size() - 1) == others.slice(0, others.size() - 1);
  if (!fits) [[unlikely]]
    dims_detail::fail_like(x, name, like, last);
}

}  // namespace lft
