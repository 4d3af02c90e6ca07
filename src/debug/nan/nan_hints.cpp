#include "src/debug/nan/nan_hints.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "src/io/files.h"
#include "src/io/json.h"

namespace lft::debug {
namespace {

bool contains(std::string_view text, std::string_view piece) {
  return text.find(piece) != std::string_view::npos;
}

bool is_one_of(std::string_view op, std::initializer_list<std::string_view> names) {
  return std::any_of(names.begin(), names.end(), [&](std::string_view name) {
    return op == std::string("aten::").append(name) ||
           op == std::string("aten::").append(name) + "_";
  });
}

TensorFacts facts_of(const OpInput& input) {
  return input.tensor.defined() ? tensor_facts(input.tensor) : input.facts;
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
  const TensorFacts facts = facts_of(input);
  const int64_t below = negatives(input, facts);
  if (log && facts.zeros > 0)
    hints.push_back({"log of zero", of_all(facts.zeros, facts) + " inputs of " + op + " are 0"});
  if (divides && facts.zeros > 0)
    hints.push_back(
        {"division by zero", of_all(facts.zeros, facts) + " inputs of " + op + " are 0"});
  if ((log || root) && below > 0) {
    hints.push_back({std::string(log ? "log" : "square root") + " of a negative number",
                     of_all(below, facts) + " inputs of " + op + " are negative, the lowest is " +
                         number_text(facts.min)});
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
  const TensorFacts divisor = facts_of(inputs[1]);
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
  if (!contains(op, "scaled_dot_product") || inputs.size() < 3 || !inputs[0].tensor.defined() ||
      !inputs[1].tensor.defined())
    return;
  const at::Tensor &q = inputs[0].tensor, &k = inputs[1].tensor;
  if (q.dim() != 4 || k.dim() != 4 || q.size(1) != k.size(1)) return;
  const double largest = largest_score(q, k), limit = largest_value(at::kFloat);
  if (largest <= limit) return;
  hints.push_back({"overflow before a softmax",
                   "the largest attention score is " + number_text(largest) + ", queries reach " +
                       number_text(largest_magnitude(q)) + " and keys " +
                       number_text(largest_magnitude(k)) +
                       "; the softmax works in fp32, which ends at " + number_text(limit)});
}

void add_overflow_hint(const std::string& op, const std::vector<OpInput>& inputs,
                       const at::Tensor& result, std::vector<Hint>& hints) {
  const double limit = largest_value(result.scalar_type());
  if (is_one_of(op, {"exp", "expm1"})) {
    const double largest = inputs.empty() ? 0 : facts_of(inputs[0]).max;
    if (largest <= std::log(limit)) return;
    hints.push_back({"overflow of exp", "the largest input is " + number_text(largest) + "; in " +
                                            dtype_text(result.scalar_type()) +
                                            " exp is infinite above " +
                                            number_text(std::log(limit))});
    return;
  }
  if (!hints.empty() || tensor_facts(result).inf == 0) return;
  std::vector<std::string> ranges;
  for (const OpInput& input : inputs) {
    const TensorFacts facts = facts_of(input);
    if (at::isFloatingType(facts.dtype)) {
      ranges.push_back(number_text(facts.absmax()) +
                       (input.name.empty() ? "" : " (" + input.name + ")"));
    }
  }
  if (ranges.empty()) return;
  std::string text = ranges.front();
  for (size_t i = 1; i < ranges.size(); ++i)
    text += (i + 1 == ranges.size() ? " and " : ", ") + ranges[i];
  hints.push_back({"overflow of " + dtype_text(result.scalar_type()),
                   "inputs of " + op + " reach " + text + "; " + dtype_text(result.scalar_type()) +
                       " ends at " + number_text(limit)});
}

/// Mean of the last three.
double recent_loss(const std::vector<StepFigures>& history) {
  const size_t count = std::min<size_t>(3, history.size());
  double sum = 0;
  for (size_t i = history.size() - count; i < history.size(); ++i) sum += history[i].loss;
  return sum / static_cast<double>(count);
}

std::string warmup_text(const recipe::Recipe& recipe) {
  return recipe.optim.warmup_ratio == 0
             ? ", without warm-up (optim.warmup_ratio 0)"
             : ", optim.warmup_ratio " + number_text(recipe.optim.warmup_ratio);
}

/// The loss had at least doubled, and by 1, since its best; or a weight is as large as only updates
/// of this rate make it.
void add_rate_hint(const recipe::Recipe& recipe, const std::vector<StepFigures>& history,
                   const NamedTensor& largest_weight, std::vector<Hint>& hints) {
  if (history.empty()) return;
  const auto better = [](const StepFigures& a, const StepFigures& b) { return a.loss < b.loss; };
  const StepFigures& best = *std::min_element(history.begin(), history.end(), better);
  const double recent = recent_loss(history), weight = largest_magnitude(largest_weight.tensor);
  double moved = 0;  // AdamW moves a weight by about its rate a step
  for (const StepFigures& each : history) moved += each.lr;
  const std::string name = recipe.optim.warmup_ratio == 0
                               ? "learning rate too high, without warm-up"
                               : "learning rate too high";
  std::vector<std::string> evidence;
  if (recent > 2 * best.loss && recent > best.loss + 1) {
    evidence.push_back("the loss rose from " + number_text(best.loss) + " (step " +
                       std::to_string(best.step) + ") to " + number_text(recent) +
                       " (mean of the last " + std::to_string(std::min<size_t>(3, history.size())) +
                       " steps)");
  }
  if (moved >= 1 && weight >= moved / 10) {
    evidence.push_back("the largest trained weight is " + number_text(weight) + " (" +
                       largest_weight.name + ") after rates that sum to " + number_text(moved));
  }
  if (evidence.empty()) return;
  std::string text = evidence.front();
  if (evidence.size() > 1) text += "; " + evidence.back();
  hints.push_back({name, text + "; optim.lr " + number_text(recipe.optim.lr) + ", last used " +
                             number_text(history.back().lr) + warmup_text(recipe)});
}

void add_clipping_hint(const recipe::Recipe& recipe, const std::vector<StepFigures>& history,
                       std::vector<Hint>& hints) {
  if (recipe.optim.clip_grad_norm != 0 || history.size() < 3) return;
  std::vector<double> norms;
  for (const StepFigures& each : history) norms.push_back(each.grad_norm);
  const auto largest =
      static_cast<size_t>(std::max_element(norms.begin(), norms.end()) - norms.begin());
  const double peak = norms[largest];
  std::nth_element(norms.begin(), norms.begin() + static_cast<std::ptrdiff_t>(norms.size() / 2),
                   norms.end());
  const double median = norms[norms.size() / 2];
  if (!(peak >= 10 * median)) return;
  hints.push_back({"no gradient clipping",
                   "optim.clip_grad_norm is 0, and the gradient norm reached " + number_text(peak) +
                       " at step " + std::to_string(history[largest].step) + ", " +
                       number_text(peak / median) + " times the median of the run"});
}

}  // namespace

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

std::vector<Hint> op_hints(const std::string& op, const std::vector<OpInput>& inputs,
                           const std::vector<double>& scalars, const at::Tensor& result) {
  std::vector<Hint> hints;
  if (!inputs.empty()) add_domain_hints(op, inputs.front(), hints);
  add_division_hint(op, inputs, scalars, hints);
  add_attention_hint(op, inputs, hints);
  add_overflow_hint(op, inputs, result, hints);
  return hints;
}

std::vector<StepFigures> read_history(const std::string& path, int64_t before_step) {
  std::vector<StepFigures> history;
  if (!io::path_exists(path)) return history;
  const std::string text = io::read_file(path);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const io::Json line = io::Json::parse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                          text.begin() + static_cast<std::ptrdiff_t>(end), nullptr,
                                          /*allow_exceptions=*/false);
    begin = end + 1;
    if (!line.is_object() || line.contains("event")) continue;
    const auto number = [&](const char* key) {
      return line.contains(key) && line[key].is_number() ? line[key].get<double>() : NAN;
    };
    const double step = number("step");
    const StepFigures figures{
        .step = 0, .loss = number("loss"), .lr = number("lr"), .grad_norm = number("grad_norm")};
    const bool whole = std::isfinite(figures.loss) && std::isfinite(figures.lr) &&
                       std::isfinite(figures.grad_norm);
    if (!whole || !(step >= 0 && step < static_cast<double>(before_step))) continue;
    history.push_back(figures);
    history.back().step = static_cast<int64_t>(step);
  }
  return history;
}

std::vector<Hint> run_hints(const recipe::Recipe& recipe, const std::vector<StepFigures>& history,
                            const NamedTensor& largest_weight) {
  std::vector<Hint> hints;
  add_rate_hint(recipe, history, largest_weight, hints);
  add_clipping_hint(recipe, history, hints);
  return hints;
}

}  // namespace lft::debug
