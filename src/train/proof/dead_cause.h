// Why the gradient of a module is exactly zero: what around it, on either side, computes nothing
// but zeros.
#pragma once
#include <string>

#include "src/train/proof/proof.h"

namespace lft::train {

/// "language_model.norm, after it, gives zeros only: its weight is all zeros": of the nearest
/// module that makes zeros of what is not, before `module` in the forward pass where what that is
/// given is zero, else after it. Empty where there is none.
std::string dead_cause(family::Model& model, const Probe& probe, const std::string& module);

}  // namespace lft::train
