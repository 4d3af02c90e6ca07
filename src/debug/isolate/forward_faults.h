// What is wrong before anything is trained: values that are not finite, modules that put out zeros
// only, an adapter that makes the base worse than guessing. Shared by overfit and bare.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "src/data/loader.h"
#include "src/train/run/run.h"

namespace lft::debug {

struct ForwardFault {
  std::string name;  // what it is and where: "overflow of fp16 in language_model.model.norm"
  std::vector<std::string> evidence = {};
  std::string next = {};
};

/// The first value that is not finite in a step on `samples`, weights and loss scale as they are.
std::optional<ForwardFault> find_not_finite(train::Run& run, const data::StepSamples& samples);

/// The first module whose output on `samples` is zero everywhere, with its weight where that is.
std::optional<ForwardFault> find_dead_output(train::Run& run, const data::StepSamples& samples);

/// The adapter of lora.init_from, where the loss with it is not finite or above that of guessing by
/// half a nat, and the base's own is at least as far below it.
std::optional<ForwardFault> find_harmful_adapter(train::Run& run, const data::StepSamples& samples);

}  // namespace lft::debug
