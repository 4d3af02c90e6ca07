// The runs of a sweep: all combinations of the values of some recipe fields.
#pragma once
#include <string>
#include <vector>

namespace lft::runs {

/// A recipe field and its values, in recipe form.
struct Axis {
  std::string key;
  std::vector<std::string> values;
};
/// Reads "optim.lr=1e-4,3e-4". Commas in brackets, braces and quotes do not separate values. kUsage
/// for anything else, or for a value that is given twice.
Axis read_axis(const std::string& text);

struct Trial {
  std::string name;               // of its folder: "lr-1e-4_rank-8"
  std::vector<std::string> sets;  // "optim.lr=1e-4", "lora.rank=8"
};
/// The values of the last axis change first. kUsage for a field that is given twice, or for more
/// than 1,000 runs.
std::vector<Trial> trials_of(const std::vector<Axis>& axes);

}  // namespace lft::runs
