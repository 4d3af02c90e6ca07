// Named causes of a value that is not finite. Each is said only with the numbers that show it.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "src/debug/nan/nan_ops.h"
#include "src/recipe/recipe.h"

namespace lft::debug {

/// One input of an op: the tensor where it is still as it was, else its range from before the op
/// wrote over it.
struct OpInput {
  std::string name;  // empty: none
  at::Tensor tensor;
  TensorFacts facts;
};
/// log of zero or of a negative number, square root of a negative number, division by zero, exp and
/// attention scores and products beyond what a dtype holds. `scalars`: the op's plain numbers.
std::vector<Hint> op_hints(const std::string& op, const std::vector<OpInput>& inputs,
                           const std::vector<double>& scalars, const at::Tensor& result);

/// The largest finite value of a floating dtype.
double largest_value(at::ScalarType dtype);

/// One line of a run's metrics.
struct StepFigures {
  int64_t step = 0;
  double loss = NAN, lr = NAN, grad_norm = NAN;
};
/// Step lines before `step` of a metrics.jsonl; nothing where there is no such file. Lines that are
/// not whole are left out.
std::vector<StepFigures> read_history(const std::string& path, int64_t before_step);

/// Learning rate too high (with or without warm-up) and missing clipping, from how the run went.
/// `largest_weight`: of all trainables.
std::vector<Hint> run_hints(const recipe::Recipe& recipe, const std::vector<StepFigures>& history,
                            const NamedTensor& largest_weight);

}  // namespace lft::debug
