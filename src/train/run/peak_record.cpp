#include "src/train/run/peak_record.h"

#include <algorithm>
#include <utility>

#include "kernels/common/error.h"
#include "src/base/text.h"
#include "src/train/memory/memory_plan.h"

namespace lft::train {

void PeakRecord::note(const data::StepSamples& samples) {
  if (run_.worst) return;
  for (size_t m = 0; m < samples.micro.size(); ++m) {
    MicroBatchShape batch{.samples = {},
                          .indices = samples.indices[m],
                          .step = run_.state.step + 1,
                          .packed = samples.layout->packs()};
    for (const data::Sample& sample : samples.micro[m])
      batch.samples.push_back(data::sample_length(sample));
    seen_.consider(std::move(batch));
  }
}

void PeakRecord::record(double peak) const {
  const double predicted = plan_memory(run_, run_.worst ? *run_.worst : largest_seen()).peak;
  files_.event("memory", run_.state.step, {{"peak_bytes", peak}, {"predicted_bytes", predicted}});
  files_.note("peak memory: " + format_bytes(peak) + " (predicted: " + format_bytes(predicted) +
              ")");
}

/// With the memory for reading its images in every worker at the same time.
MicroBatchShape PeakRecord::largest_seen() const {
  MicroBatchShape batch = seen_.largest();
  for (const int64_t index : batch.indices) {
    try {
      const auto bytes = static_cast<double>(run_.data.train->length(index).reading);
      batch.reading =
          std::max(batch.reading, static_cast<double>(run_.recipe.data.workers) * bytes);
    } catch (const Error&) {  // its image has been deleted
    }
  }
  return batch;
}

}  // namespace lft::train
