// A hunt's findings as lines for a terminal.
#pragma once
#include <string>
#include <vector>

#include "src/debug/nan/nan.h"
#include "src/train/step/step.h"

namespace lft::debug {

/// All of it: what was bad from the start, each micro-batch, the first bad value and gradient, FP32
/// beside it, causes.
std::vector<std::string> hunt_lines(const Hunt& hunt, const HuntInput& input,
                                    const std::vector<Hint>& run_hints);

/// The finding as the one error of the command: kNumeric. Needs hunt.found().
[[noreturn]] void throw_found(const Hunt& hunt, const HuntInput& input,
                              const std::vector<Hint>& run_hints);

}  // namespace lft::debug
