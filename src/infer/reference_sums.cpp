#include "src/infer/reference_sums.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/objective/pair_scores.h"
#include "src/base/phase.h"
#include "src/base/signals.h"
#include "src/data/held_out.h"
#include "src/data/loader.h"
#include "src/data/mismatched.h"
#include "src/infer/non_finite.h"

namespace lft::infer {

namespace {

/// answer_sums() in evaluation mode, in FP32 if they are not finite in `compute`. kNumeric with the
/// row if they are not finite in FP32 either.
std::vector<double> finite_sums(at::ScalarType compute, family::Model& model,
                                const data::BatchLayout& layout,
                                const std::vector<data::Sample>& samples) {
  const auto is_finite = [](double sum) { return std::isfinite(sum); };
  std::vector<double> sums = answer_sums({.compute = compute}, model, layout, samples);
  if (std::ranges::all_of(sums, is_finite)) return sums;
  sums = answer_sums({.compute = at::kFloat}, model, layout, samples);
  const auto bad = std::ranges::find_if_not(sums, is_finite);
  if (bad == sums.end()) return sums;
  const data::Sample& row = samples[static_cast<size_t>(bad - sums.begin())];
  const NonFinite found = explain_loss(model, row, layout.encode, at::kFloat);
  throw non_finite_error(row_text(row.id, found, nullptr), found.module, at::kFloat);
}

}  // namespace

std::vector<double> answer_sums(const objective::ForwardContext& context, family::Model& model,
                                const data::BatchLayout& layout,
                                const std::vector<data::Sample>& samples) {
  std::vector<double> sums(samples.size(), 0);
  const at::NoGradGuard no_grad;
  const family::Batch batch = data::make_batch(layout, samples);
  const at::Tensor logprobs = objective::forward_logprobs(context, model, batch);
  const at::Tensor of_rows =
      objective::sum_answers(logprobs.to(at::kCPU, at::kDouble), batch).logprobs_n.contiguous();
  std::copy_n(of_rows.const_data_ptr<double>(), sums.size(), sums.begin());
  return sums;
}

std::vector<std::vector<data::Sample>> mismatched(
    const std::vector<std::vector<data::Sample>>& micro, const data::EncodeOptions& encode) {
  std::vector<data::Answer> answers;
  for (const std::vector<data::Sample>& samples : micro) {
    for (const data::Sample& sample : samples)
      answers.push_back(data::answer_of(sample, encode.config.image_token));
  }
  return data::with_next_answers(micro, answers, 0, encode.config.image_token, encode.max_tokens);
}

double kl_estimate(const std::vector<double>& log_ratios) {
  const double mean = std::accumulate(log_ratios.begin(), log_ratios.end(), 0.0) /
                      static_cast<double>(log_ratios.size());
  return mean < 0 ? 0 : mean;
}

std::vector<double> reference_sums(family::Model model, const data::Dataset& rows,
                                   const data::EncodeOptions& encode,
                                   const ReferenceSumOptions& options) {
  const size_t sides = encode.pairs ? 2 : 1, each = sides + (options.group > 0 ? 1 : 0);
  std::vector<double> sums(each * static_cast<size_t>(rows.size()), 0);
  std::vector<int64_t> wanted;
  for (int64_t row = 0; row < rows.size(); ++row)
    if (!options.wants || options.wants(row)) wanted.push_back(row);
  if (wanted.empty()) return sums;
  const std::unique_ptr<data::Dataset> chosen = data::select_rows(rows, wanted);
  data::Loader loader(*chosen, {.batch_size = std::max<int64_t>(1, options.group),
                                .workers = options.workers,
                                .shuffle = false,
                                .skip_bad = encode.skip_bad});
  const data::BatchLayout layout{.encode = encode, .device = model->device()};
  Phase phase(options.phase, std::ssize(wanted), "after the reference");
  const auto put = [&](int64_t index, size_t at, const std::vector<double>& values) {
    const auto row = static_cast<size_t>(wanted[static_cast<size_t>(index)]);
    std::ranges::copy(values, sums.begin() + static_cast<std::ptrdiff_t>(each * row + at));
  };
  for (int64_t seen = 0; seen < std::ssize(wanted);) {
    const data::StepSamples step = loader.next();
    for (const int64_t bad : step.skipped_indices) put(bad, 0, std::vector<double>(each, NAN));
    seen += std::ssize(step.skipped_indices);
    for (size_t micro = 0; micro < step.micro.size(); ++micro) {
      const std::vector<data::Sample>& samples = step.micro[micro];
      std::vector<data::Sample> others;
      if (options.group > 0) others = mismatched({samples}, encode).front();
      for (size_t i = 0; i < samples.size(); i += sides, phase.add(), ++seen) {
        if (requested_signal() != 0) throw Stopped();
        const auto first = samples.begin() + static_cast<std::ptrdiff_t>(i);
        const int64_t index = step.indices[micro][i];
        put(index, 0,
            finite_sums(options.compute, model, layout,
                        {first, first + static_cast<std::ptrdiff_t>(sides)}));
        if (options.group > 0)
          put(index, sides, finite_sums(options.compute, model, layout, {others[i]}));
      }
    }
  }
  return sums;
}

}  // namespace lft::infer
