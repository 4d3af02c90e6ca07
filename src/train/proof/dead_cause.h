// Explains why the gradient of a module is exactly zero: which module before or after it outputs
// only zeros.
#pragma once
#include <string>

#include "src/train/proof/proof.h"

namespace lft::train {

/// "language_model.norm, after it, gives zeros only: its weight is all zeros": the nearest module
/// that produces zeros from non-zero input, before `module` in the forward pass if its input is
/// zero, else after it. Empty if there is none.
std::string dead_cause(family::Model& model, const Probe& probe, const std::string& module);

}  // namespace lft::train
