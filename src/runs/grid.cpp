#include "src/runs/grid.h"

#include <algorithm>
#include <cctype>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/text.h"

namespace lft::runs {
namespace {

constexpr size_t kMaxRuns = 1000, kMaxName = 100;
constexpr const char* kForm = "KEY=VALUE,VALUE,... with a field of the recipe";

std::vector<std::string> values_of(const std::string& text) {
  std::vector<std::string> values(1);
  int depth = 0;
  char quote = 0;
  for (const char c : text) {
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == ',' && depth <= 0) {
      values.emplace_back();
      continue;
    }
    values.back() += c;
  }
  for (std::string& value : values) value = std::string(trimmed(value));
  return values;
}

/// A part of a folder's name.
std::string name_of(const std::string& key, const std::string& value) {
  std::string name = key.substr(key.rfind('.') + 1) + "-" + value;
  for (char& c : name) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_';
    if (!plain) c = '-';
  }
  return name;
}

}  // namespace

Axis read_axis(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    refuse(ErrorKind::kUsage, "no field with values", "--over", quote_text(text), kForm);
  Axis axis{.key = text.substr(0, equals), .values = values_of(text.substr(equals + 1))};
  if (axis.key == "output_dir")
    refuse(ErrorKind::kUsage, "each run of a sweep has its own folder", "--over " + text, {}, {},
           "--out DIR names the folder that contains them");
  for (size_t i = 0; i < axis.values.size(); ++i) {
    const std::string& value = axis.values[i];
    if (value.empty()) refuse(ErrorKind::kUsage, "an empty value", "--over " + text, {}, kForm);
    if (std::find(axis.values.begin(), axis.values.begin() + static_cast<int64_t>(i), value) !=
        axis.values.begin() + static_cast<int64_t>(i))
      refuse(ErrorKind::kUsage, "a value is given twice", "--over " + text, quote_text(value), {},
             "leave one of them out; repeat a run with --over train.seed=1,2,3");
  }
  return axis;
}

std::vector<Trial> trials_of(const std::vector<Axis>& axes) {
  std::vector<Trial> trials(1);
  for (size_t i = 0; i < axes.size(); ++i) {
    const Axis& axis = axes[i];
    for (size_t k = 0; k < i; ++k) {
      if (axes[k].key == axis.key)
        refuse(ErrorKind::kUsage, "a field is given twice", "--over " + axis.key, {}, {},
               "give all its values at once: --over " + axis.key + "=VALUE,VALUE");
    }
    std::vector<Trial> longer;
    for (const Trial& trial : trials) {
      for (const std::string& value : axis.values) {
        Trial more = trial;
        more.name += (more.name.empty() ? "" : "_") + name_of(axis.key, value);
        more.sets.push_back(axis.key + "=" + value);
        longer.push_back(std::move(more));
      }
    }
    trials = std::move(longer);
    if (trials.size() > kMaxRuns)
      refuse(ErrorKind::kUsage, "too many runs", "--over", std::to_string(trials.size()),
             "at most " + std::to_string(kMaxRuns), "give fewer values");
  }
  for (size_t i = 0; i < trials.size(); ++i) {
    const bool same = std::ranges::count(trials, trials[i].name, &Trial::name) > 1;
    if (same || trials[i].name.size() > kMaxName)
      trials[i].name = trials[i].name.substr(0, kMaxName) + "." + std::to_string(i + 1);
  }
  return trials;
}

}  // namespace lft::runs
