// The result of the search for values that are not finite, as text and as an error.
#pragma once
#include <string>
#include <vector>

#include "src/debug/nan/nan.h"

namespace lft::debug {

/// All of it, to print: what was bad from the start, each micro-batch, the first bad value and
/// gradient, FP32 beside it, causes.
std::vector<std::string> hunt_lines(const Hunt& hunt, const HuntInput& input,
                                    const std::vector<train::Hint>& run_hints);

/// The finding as the one error of the command: kNumeric. Needs hunt.found().
[[noreturn]] void throw_found(const Hunt& hunt, const HuntInput& input,
                              const std::vector<train::Hint>& run_hints);

}  // namespace lft::debug
