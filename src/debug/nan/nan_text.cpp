#include "src/debug/nan/nan_text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "kernels/common/error.h"
#include "src/base/text.h"
#include "src/debug/nan/nan.h"
#include "src/train/machine/precision.h"

namespace lft::debug {
namespace {

using train::short_number;

constexpr size_t kShownIds = 8, kShownInputs = 4;
constexpr ptrdiff_t kAround = 3;  // rows of the table before and after

std::string or_model(const std::string& module) {
  return module.empty() ? "(outside any module)" : module;
}

std::string maker_text(const train::BadValue& bad) {
  return bad.op + (bad.inner.empty() || bad.inner == bad.op ? "" : " (in it " + bad.inner + ")");
}

std::string percent_text(double value) {
  return std::isfinite(value) ? format_number(100 * value, "%.3g %%") : "all";
}

void add_value(const std::string& title, const train::BadValue& bad,
               std::vector<std::string>& lines) {
  lines.push_back(title);
  lines.push_back("  module   " + or_model(bad.module));
  lines.push_back("  op       " + maker_text(bad));
  lines.push_back("  value    " + train::facts_text(bad.value));
  for (size_t i = 0; i < std::min(kShownInputs, bad.inputs.size()); ++i)
    lines.push_back("  input    " + (bad.inputs[i].name.empty() ? "" : bad.inputs[i].name + ", ") +
                    train::facts_text(bad.inputs[i].facts));
  const std::string inputs = !bad.from.empty() ? "no: it read " + bad.from
                             : bad.inputs_known
                                 ? "yes"
                                 : "unknown: it is no op of LibTorch; those of the module were";
  lines.push_back("  inputs were finite: " + inputs);
}

std::string row_text(const std::string& module, const std::string& dtype,
                     const std::string& largest, const std::string& fp32,
                     const std::string& apart) {
  char text[512];
  std::snprintf(text, sizeof text, "  %-56s %-5s %10s %10s %10s", module.c_str(), dtype.c_str(),
                largest.c_str(), fp32.c_str(), apart.c_str());
  return text;
}

void add_table(const MicroHunt& hunt, size_t middle, const std::string& compute,
               std::vector<std::string>& lines) {
  lines.push_back(row_text("module", "dtype", "in " + compute, "in fp32", "apart"));
  const auto count = static_cast<ptrdiff_t>(hunt.differences.size()),
             row = static_cast<ptrdiff_t>(middle);
  for (ptrdiff_t i = std::max<ptrdiff_t>(0, row - kAround); i < std::min(count, row + kAround + 1);
       ++i) {
    const auto index = static_cast<size_t>(i);
    const train::ModuleRow &own = hunt.pass.modules[index], &other = hunt.fp32->modules[index];
    lines.push_back(row_text(own.module, train::dtype_text(own.dtype), short_number(own.largest),
                             short_number(other.largest), percent_text(hunt.differences[index])) +
                    (i == row ? "  <" : ""));
  }
}

/// Where the two precisions diverge, or how closely they agree.
void add_beside(const MicroHunt& hunt, const HuntInput& input, std::vector<std::string>& lines) {
  const at::ScalarType dtype = input.compute;
  const std::string compute = train::compute_name(dtype);
  if (!hunt.fp32) {
    lines.emplace_back("fp32 pass: out of memory");
    return;
  }
  if (hunt.differences.empty()) return;
  if (hunt.parting) {
    const size_t row = *hunt.parting;
    const std::string apart = std::isfinite(hunt.differences[row])
                                  ? percent_text(hunt.differences[row]) + " apart"
                                  : "not finite in one of them";
    lines.push_back("fp32 pass differs at " + or_model(hunt.pass.modules[row].module) + ": " +
                    apart + ", rounding to " + compute + " explains " +
                    percent_text(explained_difference(dtype, row + 1)));
    add_table(hunt, row, compute, lines);
  } else {
    const auto widest = std::ranges::max_element(hunt.differences);
    lines.push_back(
        "fp32 pass agrees: at most " + percent_text(*widest) + " apart, at " +
        or_model(hunt.pass.modules[static_cast<size_t>(widest - hunt.differences.begin())].module) +
        ", within what rounding to " + compute + " explains");
  }
  if (!hunt.pass.finite()) {
    lines.push_back(
        "in fp32 the same " +
        std::string(hunt.fp32->finite()
                        ? "is finite: loss " + short_number(hunt.fp32->loss) +
                              (input.evaluated > 0
                                   ? ""
                                   : ", gradient norm " + short_number(hunt.fp32->gradient_norm))
                        : "is not finite either: precision is not the cause"));
  }
}

void add_backward(const train::PassReport& pass, std::vector<std::string>& lines) {
  if (pass.backward && pass.forward && !pass.finite()) {
    lines.push_back("backward pass: not finite from " + maker_text(*pass.backward) + " in " +
                    or_model(pass.backward->module) + " on, after a forward pass that was not");
  } else if (pass.backward) {
    add_value("backward pass: first gradient that is not finite", *pass.backward, lines);
  }
  if (!pass.gradients.empty()) {
    lines.push_back("  " + std::to_string(pass.gradients.size()) +
                    " parameters have a gradient that is not finite, the first is " +
                    pass.gradients.front().name + ": " +
                    train::bad_count_text(pass.gradients.front().facts));
  }
  if (pass.finite() && (pass.forward || pass.backward)) {
    lines.emplace_back("  harmless: it reached neither the loss nor the gradient of a parameter");
  }
}

void add_micro(const MicroHunt& hunt, const HuntInput& input, std::vector<std::string>& lines) {
  const std::string compute = train::compute_name(input.compute);
  std::string line = "micro-batch " + std::to_string(hunt.micro) + ": loss " +
                     short_number(hunt.pass.loss) + " in " + compute;
  if (hunt.fp32) line += ", " + short_number(hunt.fp32->loss) + " in fp32";
  lines.push_back(line + (!hunt.pass.finite()   ? ""
                          : input.evaluated > 0 ? "; the forward pass is finite"
                                                : "; forward and backward pass are finite"));
  if (hunt.pass.forward)
    add_value("forward pass: first value that is not finite", *hunt.pass.forward, lines);
  add_backward(hunt.pass, lines);
  if (input.compute != at::kFloat) add_beside(hunt, input, lines);
}

/// Most likely first: the run's history explains the value, not vice versa.
std::vector<train::Hint> all_hints(const Hunt& hunt, const std::vector<train::Hint>& run_hints) {
  std::vector<train::Hint> hints = run_hints;
  if (hunt.first() != nullptr)
    hints.insert(hints.end(), hunt.first()->hints.begin(), hunt.first()->hints.end());
  return hints;
}

/// The remedy for a cause.
struct Remedy {
  const char *cause, *next;  // the cause's name starts with this
};
constexpr Remedy kRemedies[] = {
    {"learning rate too high", "lower optim.lr, a quarter at first, or raise optim.warmup_ratio"},
    {"no gradient clipping", "set optim.clip_grad_norm; 1 is usual"},
    {"loss scale too high", "lower precision.loss_scale.init"},
    {"overflow of bf16, and", "lower optim.lr; where no step was taken yet, lft debug base MODEL"},
    {"overflow of fp16, and", "lower optim.lr; where no step was taken yet, lft debug base MODEL"},
    {"overflow of fp16",
     "set precision.compute to bf16 or fp32, whose range contains these values"},
    {"overflow of bf16", "set precision.compute to fp32"},
    {"overflow", "lower optim.lr; where no step was taken yet, lft debug base MODEL"},
    {"a gradient blown up on the way", "lower optim.lr, and set optim.clip_grad_norm to 1"},
    {"not finite before anything was computed",
     "lft debug base MODEL looks at the weights, lft validate RECIPE at the rows"},
};

std::string remedy_of(const std::string& cause) {
  for (const Remedy& remedy : kRemedies) {
    if (cause.starts_with(remedy.cause)) return remedy.next;
  }
  return "lft debug base MODEL looks at the weights that go into it; the lines above have the "
         "values";
}

}  // namespace

std::vector<std::string> hunt_lines(const Hunt& hunt, const HuntInput& input,
                                    const std::vector<train::Hint>& run_hints) {
  std::vector<std::string> lines;
  for (const BadGiven& given : hunt.given)
    lines.push_back("not finite or out of range before anything is computed: " + given.name + ": " +
                    given.text);
  for (const MicroHunt& micro : hunt.micro) add_micro(micro, input, lines);
  if (hunt.rows.looked_at > 0) lines.push_back("at fault  " + train::bad_rows_text(hunt.rows));
  const std::vector<train::Hint> hints = all_hints(hunt, run_hints);
  if (!hints.empty()) lines.emplace_back("causes that the numbers show");
  for (const train::Hint& hint : hints) lines.push_back("  " + hint.name + ": " + hint.evidence);
  return lines;
}

void throw_found(const Hunt& hunt, const HuntInput& input,
                 const std::vector<train::Hint>& run_hints) {
  ErrorInfo info;
  info.where =
      (input.evaluated > 0 ? "the evaluation after step " : "step ") + std::to_string(input.step);
  info.expected = "finite values only";
  const MicroHunt* micro = hunt.first();
  if (micro != nullptr) {
    info.where += ", micro-batch " + std::to_string(micro->micro);
    if (train::names_a_row(hunt.rows)) {
      info.where += ", " + train::bad_rows_text(hunt.rows);
    } else if (micro->micro < input.ids.size()) {
      info.where += ", samples " + join_names(input.ids[micro->micro], kShownIds);
    }
  }
  const std::vector<train::Hint> hints = all_hints(hunt, run_hints);
  info.next = hints.empty() ? "lft debug overfit RECIPE and lft debug bare RECIPE look for a cause "
                              "in the settings"
                            : remedy_of(hints.front().name);
  if (!hunt.given.empty()) {
    info.next = remedy_of("not finite before anything was computed");
    info.what =
        "not finite or out of range before anything is computed: " + hunt.given.front().name;
    info.found = hunt.given.front().text;
  } else if (const auto& bad = micro->pass.forward ? micro->pass.forward : micro->pass.backward) {
    const std::string start = micro->pass.forward ? "the forward pass is not finite from "
                                                  : "the backward pass is not finite from ";
    info.what = start + maker_text(*bad) + " in " + or_model(bad->module) + " on";
    info.found = train::facts_text(bad->value);
  } else {
    info.what = "a gradient is not finite: " + micro->pass.gradients.front().name;
    info.found = train::bad_count_text(micro->pass.gradients.front().facts);
  }
  if (!hints.empty() && hunt.given.empty())
    info.found =
        "likely cause: " + hints.front().name + ": " + hints.front().evidence + "\n" + info.found;
  throw Error(ErrorKind::kNumeric, info);
}

}  // namespace lft::debug
