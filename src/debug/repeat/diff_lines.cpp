#include "src/debug/repeat/diff_lines.h"

#include <algorithm>
#include <cmath>

#include "src/base/text.h"
#include "src/debug/repeat/diff.h"

namespace lft::debug {
namespace {

std::string side_line(const std::string& name, const RunSide& side) {
  std::string line = name + "           " + side.path + ": " + std::to_string(side.last_step) +
                     (side.last_step == 1 ? " step" : " steps");
  return side.run_id.empty() ? line : line + " of run " + side.run_id;
}

void add_differences(std::vector<std::string>& lines, const std::string& title,
                     const std::vector<FieldDifference>& differences) {
  std::string label = title;
  label.resize(12, ' ');
  for (const FieldDifference& each : differences) {
    lines.push_back(label + each.key + ": " + each.a + " in A, " + each.b + " in B");
    label = std::string(12, ' ');
  }
}

const FieldDifference* find(const RunDiff& diff, const std::string& key) {
  const auto found = std::ranges::find(diff.fields, key, &FieldDifference::key);
  return found == diff.fields.end() ? nullptr : &*found;
}

/// "relative difference 1.2e-07" for two numbers, else nothing.
std::string relative(const FieldDifference& field) {
  try {
    const double a = std::stod(field.a), b = std::stod(field.b);
    return ", relative difference " +
           format_number(std::abs(a - b) / std::max(std::abs(a), std::abs(b)), "%.2g");
  } catch (const std::exception&) {
    return "";  // null: not finite
  }
}

std::string numbers_text(const RunDiff& diff) {
  if (const FieldDifference* loss = find(diff, "loss")) {
    const std::string since =
        diff.step == 1 ? "the weights they started from, or the arithmetic of the forward pass"
                       : "the update of the step before, or the arithmetic of this forward pass";
    return "the numbers part: the same samples, another loss" + relative(*loss) + "; " + since;
  }
  if (const FieldDifference* norm = find(diff, "grad_norm")) {
    return "the numbers part: the same loss, another gradient norm" + relative(*norm) +
           "; the arithmetic of the backward pass";
  }
  return "the numbers part: the bits of the loss of a step that wrote none";
}

std::string what_parts(const RunDiff& diff) {
  switch (diff.parting) {
    case Parting::kNone:
      return "nothing";
    case Parting::kOutcome:
      return "the outcome parts: " + diff.fields.front().a + " in A, " + diff.fields.front().b +
             " in B (nothing: a step that was taken)";
    case Parting::kSamples:
      return "the samples part: other ids, or the same in another order";
    case Parting::kContents:
      return "the samples part: the same ids, other tokens";
    case Parting::kSchedule:
      return "the learning rate parts";
    case Parting::kPrecision:
      return "the precision or the loss scale parts";
    case Parting::kNumbers:
      return numbers_text(diff);
  }
  return "";
}

}  // namespace

std::string parting_text(const RunDiff& diff) {
  return "step " + std::to_string(diff.step) + ": " + what_parts(diff);
}

std::vector<std::string> diff_lines(const RunDiff& diff) {
  std::vector<std::string> lines = {side_line("A", diff.a), side_line("B", diff.b)};
  add_differences(lines, "recipe", diff.recipe);
  add_differences(lines, "inputs", diff.inputs);
  add_differences(lines, "environment", diff.environment);
  if (diff.recipe.empty() && diff.inputs.empty() && diff.environment.empty())
    lines.push_back("settings    no difference found");
  for (const std::string& note : diff.notes) lines.push_back("note        " + note);
  if (diff.step == 0) {
    lines.push_back("equal       in all " + std::to_string(diff.compared) +
                    " steps that both have");
    return lines;
  }
  add_differences(lines, "step " + std::to_string(diff.step), diff.fields);
  return lines;
}

}  // namespace lft::debug
