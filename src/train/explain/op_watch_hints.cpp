// Named causes of an op's bad value. Each is reported only with the numbers that support it.
#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>

#include "src/train/explain/op_watch.h"

namespace lft::train {
namespace {

bool is_one_of(std::string_view op, std::initializer_list<std::string_view> names) {
  return std::ranges::any_of(names, [&](std::string_view name) {
    return op == std::string("aten::").append(name) ||
           op == std::string("aten::").append(name) + "_";
  });
}

std::string of_all(int64_t some, const TensorFacts& facts) {
  return std::to_string(some) + " of " + std::to_string(facts.count());
}

int64_t negatives(const OpInput& input, const TensorFacts& facts) {
  if (!(facts.min < 0)) return 0;
  return input.tensor.defined() ? (input.tensor < 0).sum().item<int64_t>() : 1;
}

void add_domain_hints(const std::string& op, const OpInput& input, std::vector<Hint>& hints) {
  const bool log = is_one_of(op, {"log", "log2", "log10"}), root = is_one_of(op, {"sqrt", "rsqrt"});
  const bool divides = is_one_of(op, {"rsqrt", "reciprocal"});
  if (!log && !root && !divides) return;
  const TensorFacts facts = input.facts();
  const int64_t below = negatives(input, facts);
  if (log && facts.zeros > 0)
    hints.push_back({"log of zero", of_all(facts.zeros, facts) + " inputs of " + op + " are 0"});
  if (divides && facts.zeros > 0)
    hints.push_back(
        {"division by zero", of_all(facts.zeros, facts) + " inputs of " + op + " are 0"});
  if ((log || root) && below > 0) {
    hints.push_back({std::string(log ? "log" : "square root") + " of a negative number",
                     of_all(below, facts) + " inputs of " + op + " are negative, the lowest is " +
                         short_number(facts.min)});
  }
}

void add_division_hint(const std::string& op, const std::vector<OpInput>& inputs,
                       const std::vector<double>& scalars, std::vector<Hint>& hints) {
  if (!is_one_of(op, {"div", "true_divide", "divide"})) return;
  if (inputs.size() < 2) {
    if (!scalars.empty() && scalars.front() == 0)
      hints.push_back({"division by zero", "the divisor of " + op + " is 0"});
    return;
  }
  const TensorFacts divisor = inputs[1].facts();
  if (divisor.zeros > 0)
    hints.push_back(
        {"division by zero", of_all(divisor.zeros, divisor) + " divisors of " + op + " are 0"});
}

/// The largest magnitude among the scores q k^T / sqrt(e), one matrix at a time.
double largest_score(const at::Tensor& q, const at::Tensor& k) {
  double largest = 0;
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(-1)));
  for (int64_t b = 0; b < q.size(0); ++b) {
    for (int64_t h = 0; h < q.size(1); ++h) {
      const at::Tensor scores = at::mm(q[b][h].to(at::kDouble), k[b][h].to(at::kDouble).t());
      largest = std::max(largest, largest_magnitude(scores) * scale);
    }
  }
  return largest;
}

void add_attention_hint(const std::string& op, const std::vector<OpInput>& inputs,
                        std::vector<Hint>& hints) {
  if (op.find("scaled_dot_product") == std::string::npos || inputs.size() < 3 ||
      !inputs[0].tensor.defined() || !inputs[1].tensor.defined())
    return;
  const at::Tensor &q = inputs[0].tensor, &k = inputs[1].tensor;
  if (q.dim() != 4 || k.dim() != 4 || q.size(1) != k.size(1)) return;
  const double largest = largest_score(q, k), limit = largest_value(at::kFloat);
  if (largest <= limit) return;
  hints.push_back({"overflow before a softmax",
                   "the largest attention score is " + short_number(largest) + ", queries reach " +
                       short_number(largest_magnitude(q)) + " and keys " +
                       short_number(largest_magnitude(k)) +
                       "; the softmax works in fp32, which ends at " + short_number(limit)});
}

void add_overflow_hint(const std::string& op, const std::vector<OpInput>& inputs,
                       const at::Tensor& result, std::vector<Hint>& hints) {
  const double limit = largest_value(result.scalar_type());
  if (is_one_of(op, {"exp", "expm1"})) {
    const double largest = inputs.empty() ? 0 : inputs[0].facts().max;
    if (largest <= std::log(limit)) return;
    hints.push_back({"overflow of exp", "the largest input is " + short_number(largest) + "; in " +
                                            dtype_text(result.scalar_type()) +
                                            " exp is infinite above " +
                                            short_number(std::log(limit))});
    return;
  }
  if (!hints.empty() || tensor_facts(result).inf == 0) return;
  std::vector<std::string> ranges;
  for (const OpInput& input : inputs) {
    const TensorFacts facts = input.facts();
    if (at::isFloatingType(facts.dtype)) {
      ranges.push_back(short_number(facts.absmax()) +
                       (input.name.empty() ? "" : " (" + input.name + ")"));
    }
  }
  if (ranges.empty()) return;
  std::string text = ranges.front();
  for (size_t i = 1; i < ranges.size(); ++i)
    text += (i + 1 == ranges.size() ? " and " : ", ") + ranges[i];
  hints.push_back({"overflow of " + dtype_text(result.scalar_type()),
                   "inputs of " + op + " reach " + text + "; " + dtype_text(result.scalar_type()) +
                       " ends at " + short_number(limit)});
}

}  // namespace

std::vector<Hint> op_hints(const std::string& op, const std::vector<OpInput>& inputs,
                           const std::vector<double>& scalars, const at::Tensor& result) {
  std::vector<Hint> hints;
  if (!inputs.empty()) add_domain_hints(op, inputs.front(), hints);
  add_division_hint(op, inputs, scalars, hints);
  add_attention_hint(op, inputs, hints);
  add_overflow_hint(op, inputs, result, hints);
  return hints;
}

}  // namespace lft::train
