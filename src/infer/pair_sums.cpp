#include "src/infer/pair_sums.h"

#include <ATen/ATen.h>

#include <cmath>

#include "models/objective/forward_loss.h"
#include "models/objective/pair_scores.h"
#include "src/base/phase.h"
#include "src/base/signals.h"
#include "src/data/held_out.h"
#include "src/data/loader.h"

namespace lft::infer {

std::vector<double> pair_sums(family::Model model, const data::Dataset& rows,
                              const data::EncodeOptions& encode, const PairSumOptions& options) {
  std::vector<double> sums(static_cast<size_t>(2 * rows.size()), 0);
  std::vector<int64_t> wanted;
  for (int64_t row = 0; row < rows.size(); ++row)
    if (!options.wants || options.wants(row)) wanted.push_back(row);
  const std::unique_ptr<data::Dataset> chosen = data::select_rows(rows, wanted);
  data::Loader loader(
      *chosen,
      {.batch_size = 1, .workers = options.workers, .shuffle = false, .skip_bad = encode.skip_bad});
  Phase phase(options.phase, std::ssize(wanted), "after the reference");
  for (size_t i = 0; i < wanted.size(); ++i, phase.add()) {
    if (requested_signal() != 0) throw Stopped();
    const data::StepSamples step = loader.next();
    const auto first = static_cast<size_t>(2 * wanted[i]);
    if (step.micro.empty()) {  // a bad row
      sums[first] = sums[first + 1] = NAN;
      continue;
    }
    const at::NoGradGuard no_grad;
    const family::Batch batch = data::collate(step.micro[0], encode, model->device());
    const at::Tensor logprobs =
        objective::forward_logprobs({.compute = options.compute}, model, batch);
    const at::Tensor of_sides =
        objective::sum_answers(logprobs.to(at::kCPU, at::kDouble), batch).logprobs_n;
    for (int64_t side = 0; side < 2; ++side)
      sums[first + static_cast<size_t>(side)] = of_sides[side].item<double>();
  }
  return sums;
}

}  // namespace lft::infer
