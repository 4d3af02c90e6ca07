// A step's samples, fetched while the device still works on the step before. Changes no order and
// counts nothing: what was fetched and not asked for was never consumed.
#pragma once
#include <optional>

#include "src/data/loader.h"
#include "src/train/step/step.h"

namespace lft::train {

class SamplesAhead {
 public:
  explicit SamplesAhead(data::Loader& loader) : loader_(loader) {}
  /// Fetches the next step's samples and makes the first micro-batch of them. Throws nothing: what
  /// went wrong is said by next(), or by the step that makes the batch again.
  void fetch();
  /// What was fetched, else the loader's next.
  data::StepSamples next();

 private:
  data::Loader& loader_;
  std::optional<data::StepSamples> samples_;
};

}  // namespace lft::train
