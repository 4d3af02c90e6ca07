// Statistics of a tensor for locating non-finite values: how many values are not finite, and the
// range of the others.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lft::train {

struct TensorFacts {
  std::vector<int64_t> shape;
  at::ScalarType dtype = at::kFloat;
  int64_t nan = 0, inf = 0, zeros = 0;
  double min = NAN, max = NAN;  // of the finite values; NaN if there are none

  bool finite() const { return nan == 0 && inf == 0; }
  int64_t count() const;
  double absmax() const;  // of the finite values; 0 if there are none
};

/// One pass without a copy. Integer and undefined tensors count as finite.
bool is_finite(const at::Tensor& tensor);
/// Largest magnitude of all values: NaN or infinite if any value is not finite; 0 for no values. As
/// cheap as is_finite().
double largest_magnitude(const at::Tensor& tensor);
/// Flat index of the first value that is not finite. Needs !is_finite(tensor).
int64_t first_bad_index(const at::Tensor& tensor);
/// Computes all statistics, in several passes.
TensorFacts tensor_facts(const at::Tensor& tensor);

/// "fp16 [2, 48]: 3 NaN and 1 inf of 96 values, the others within [-2.5, 65000]"
std::string facts_text(const TensorFacts& facts);
/// "3 NaN and 1 inf of 96"
std::string bad_count_text(const TensorFacts& facts);
std::string short_number(double value);  // four digits; nan, inf, -inf
std::string dtype_text(at::ScalarType dtype);
/// The largest finite value of a floating dtype.
double largest_value(at::ScalarType dtype);

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};
struct NamedFacts {
  std::string name;  // empty: the tensor has no name
  TensorFacts facts;
};

}  // namespace lft::train
