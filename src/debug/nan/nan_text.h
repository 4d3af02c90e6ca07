// The result of the search for values that are not finite, as text and as an error.
#pragma once
#include <string>
#include <vector>

#include "src/debug/nan/nan.h"

namespace lft::debug {

/// Lines to print: bad inputs, each micro-batch, the first bad value and gradient, the FP32 pass,
/// causes.
std::vector<std::string> hunt_lines(const Hunt& hunt, const HuntInput& input,
                                    const std::vector<train::Hint>& run_hints);

/// Throws the finding as a kNumeric error. Requires hunt.found().
[[noreturn]] void throw_found(const Hunt& hunt, const HuntInput& input,
                              const std::vector<train::Hint>& run_hints);

}  // namespace lft::debug
