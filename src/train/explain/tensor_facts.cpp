#include "src/train/explain/tensor_facts.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/ScalarType.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "src/train/machine/precision.h"

namespace lft::train {

int64_t TensorFacts::count() const { return c10::multiply_integers(shape); }

double TensorFacts::absmax() const {
  return std::isnan(min) ? 0 : std::max(std::abs(min), std::abs(max));
}

bool is_finite(const at::Tensor& tensor) { return std::isfinite(largest_magnitude(tensor)); }

double largest_magnitude(const at::Tensor& tensor) {
  if (!tensor.defined() || !at::isFloatingType(tensor.scalar_type()) || tensor.numel() == 0)
    return 0;
  const at::NoGradGuard no_grad;
  const auto [low, high] = at::aminmax(tensor);  // both are NaN if any value is
  const auto min = low.item<double>(), max = high.item<double>();
  return std::isnan(min) ? min : std::max(std::abs(min), std::abs(max));
}

int64_t first_bad_index(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  return at::isfinite(tensor).logical_not().flatten().to(at::kByte).argmax().item<int64_t>();
}

TensorFacts tensor_facts(const at::Tensor& tensor) {
  TensorFacts facts;
  if (!tensor.defined()) return facts;
  facts.shape = tensor.sizes().vec();
  facts.dtype = tensor.scalar_type();
  if (tensor.numel() == 0 || tensor.is_complex()) return facts;
  const at::NoGradGuard no_grad;
  facts.zeros = tensor.numel() - tensor.count_nonzero().item<int64_t>();
  if (!at::isFloatingType(facts.dtype)) return facts;
  facts.nan = at::isnan(tensor).sum().item<int64_t>();
  facts.inf = at::isinf(tensor).sum().item<int64_t>();
  if (facts.nan + facts.inf == tensor.numel()) return facts;
  const at::Tensor finite = facts.finite() ? tensor : tensor.masked_select(at::isfinite(tensor));
  const auto [low, high] = at::aminmax(finite);
  facts.min = low.item<double>();
  facts.max = high.item<double>();
  return facts;
}

std::string short_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char text[32];
  std::snprintf(text, sizeof text,
                std::abs(value) >= 1000 && std::abs(value) < 1e7 ? "%.0f" : "%.4g", value);
  return text;
}

std::string dtype_text(at::ScalarType dtype) {
  if (dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16)
    return compute_name(dtype);
  return dtype == at::kDouble ? "fp64" : c10::toString(dtype);
}

double largest_value(at::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf:
      return 65504;
    case at::kBFloat16:
      return 0x1.FEp127;
    case at::kDouble:
      return std::numeric_limits<double>::max();
    default:
      return std::numeric_limits<float>::max();
  }
}

std::string bad_count_text(const TensorFacts& facts) {
  std::string text;
  if (facts.nan > 0) text = std::to_string(facts.nan) + " NaN";
  if (facts.inf > 0) text += (text.empty() ? "" : " and ") + std::to_string(facts.inf) + " inf";
  return text + " of " + std::to_string(facts.count());
}

std::string facts_text(const TensorFacts& facts) {
  const std::string range = std::isnan(facts.min) ? ""
                                                  : " within [" + short_number(facts.min) + ", " +
                                                        short_number(facts.max) + "]";
  const std::string start = dtype_text(facts.dtype) + " " + c10::str(at::IntArrayRef(facts.shape));
  if (facts.finite()) return start + (range.empty() ? "" : ":" + range);
  return start + ": " + bad_count_text(facts) + " values" +
         (range.empty() ? "" : ", the others" + range);
}

}  // namespace lft::train
