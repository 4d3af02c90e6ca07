// Problems before training: values that are not finite, modules that output only zeros, an adapter
// that makes the base worse than a uniform guess. Used by overfit and bare.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "src/data/loader.h"
#include "src/train/run/run.h"

namespace lft::debug {

struct ForwardFault {
  std::string name;  // cause and place: "overflow of fp16 in language_model.model.norm"
  std::vector<std::string> evidence = {};
  std::string next = {};
};

/// The first value that is not finite in a step on `samples`, with the current weights and loss
/// scale.
std::optional<ForwardFault> find_not_finite(train::Run& run, const data::StepSamples& samples);

/// The first module whose output on `samples` is zero everywhere, with its weight if that is zero.
std::optional<ForwardFault> find_dead_output(train::Run& run, const data::StepSamples& samples);

/// The adapter of lora.init_from, if the loss with it is not finite or half a nat above the
/// uniform-guess loss, and the base's loss is at least half a nat below that.
std::optional<ForwardFault> find_harmful_adapter(train::Run& run, const data::StepSamples& samples);

}  // namespace lft::debug
