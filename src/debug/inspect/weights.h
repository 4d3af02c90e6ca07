// Differences between two sets of weights: adapters, checkpoint steps, incidents, output
// directories, models. Reads one tensor at a time.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/common/error.h"

namespace lft::debug {

/// One module's tensors, taken together (an adapter's A and B, a layer's weight and bias).
struct ModuleChange {
  std::string module;
  int64_t tensors = 0, tensors_changed = 0;
  int64_t elements = 0, changed = 0;  // changed: other values, not other bits
  double relative = 0;  // Frobenius norm of the difference / of A's values; infinite if A is all
                        // zero and B is not
  double max_abs = 0;   // NaN if a difference is one
  std::vector<std::string>
      notes;  // unchanged tensors next to changed ones, another dtype, non-finite values
};

struct WeightsReport {
  std::string a, b;  // compared directories, with an output directory's folder in its place
  std::vector<ModuleChange>
      modules;  // of the common tensors with equal shapes, largest relative change first
  std::vector<std::string> only_a, only_b;  // tensors
  std::vector<std::string> shapes;          // "name: [2, 3] and [2, 4]"
  bool changed() const;                     // any difference
};

/// `a` and `b`: an adapter directory, one step of a checkpoint, a checkpoints folder (its newest
/// step that verifies), an incident, an output_dir (its adapter, model or newest step) or a model
/// directory. kInput for anything else; kCheckpoint for a step that does not verify; kUsage if no
/// tensor name is in both.
WeightsReport compare_weights(const std::string& a, const std::string& b);

/// The table to print.
std::vector<std::string> weights_lines(const WeightsReport& report);

/// The error if a change was expected and there is none.
ErrorInfo unchanged_error(const WeightsReport& report);

}  // namespace lft::debug
