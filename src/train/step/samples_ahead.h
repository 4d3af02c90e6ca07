// Prefetches a step's samples while the device computes the previous step. Does not change order or
// counters: samples that were fetched but not requested were never consumed.
#pragma once
#include <optional>

#include "src/data/loader.h"
#include "src/train/step/step.h"

namespace lft::train {

class SamplesAhead {
 public:
  explicit SamplesAhead(data::Loader& loader) : loader_(loader) {}
  /// Fetches the next step's samples and builds their first micro-batch. Does not throw: errors are
  /// reported by next(), or by the step that builds the batch again.
  void fetch();
  /// The prefetched samples, else the loader's next.
  data::StepSamples next();

 private:
  data::Loader& loader_;
  std::optional<data::StepSamples> samples_;
};

}  // namespace lft::train
