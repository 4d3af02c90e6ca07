#include "src/train/step/samples_ahead.h"

#include <exception>
#include <utility>

namespace lft::train {

void SamplesAhead::fetch() {
  try {
    samples_ = loader_.next();
    if (!samples_->micro.empty() && supervised_tokens(samples_->micro.front()) > 0) {
      samples_->made = std::make_shared<family::Batch>(samples_->make(samples_->micro.front()));
    }
  } catch (const std::exception&) {  // the loader throws the same error again
  }
}

data::StepSamples SamplesAhead::next() {
  if (!samples_) return loader_.next();
  data::StepSamples samples = std::move(*samples_);
  samples_.reset();
  return samples;
}

}  // namespace lft::train
