#include "src/train/step/kl_term.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <bit>
#include <numeric>

#include "kernels/common/error.h"
#include "models/base/call.h"
#include "src/infer/reference_sums.h"
#include "src/io/json.h"
#include "src/train/machine/device.h"
#include "src/train/step/parts.h"

namespace lft::train {
namespace {

constexpr char kOutOfMemory[] = "out of memory";

/// The trainables with their initial values, for its lifetime.
class AtReference {
 public:
  AtReference(Optimizer& optimizer, const std::vector<at::Tensor>& initial, at::ScalarType compute)
      : optimizer_(optimizer), compute_(compute) {
    if (initial.size() != optimizer.slots().size())
      throw Error(ErrorKind::kInternal, "a step without the initial values of its reference");
    for (const Slot& slot : optimizer.slots())
      current_.push_back(slot.param.tensor.detach().clone());
    exchange(initial);
  }
  ~AtReference() { exchange(current_); }
  AtReference(const AtReference&) = delete;

 private:
  void exchange(const std::vector<at::Tensor>& values) {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < values.size(); ++i)
      optimizer_.slots()[i].param.tensor.detach().copy_(values[i]);
    optimizer_.refresh_copies(compute_);
  }

  Optimizer& optimizer_;
  const at::ScalarType compute_;
  std::vector<at::Tensor> current_;
};

/// Of this process's rows.
std::vector<double> log_ratios(const TrainState& train_state, const StepOptions& options,
                               objective::ForwardContext context, const data::StepSamples& samples,
                               const GlobalBatch& whole, const StepState& state) {
  const data::EncodeOptions& encode = samples.layout->encode;
  const auto first =
      std::accumulate(whole.rows.begin(), whole.rows.begin() + whole.first, size_t{0});
  std::vector<std::vector<data::Sample>> parts;
  for (std::vector<data::Sample>& micro : data::with_next_answers(
           samples.micro, whole.answers, first, encode.config.image_token, encode.max_tokens)) {
    if (state.split == 1) {  // without another copy of the images
      parts.push_back(std::move(micro));
      continue;
    }
    for (std::vector<data::Sample>& part :
         parts_of(micro, state.split, options.objective->rows_together()))
      parts.push_back(std::move(part));
  }
  CallObserver none;  // observers of the step see only its passes over the rows themselves
  const ObserveCalls unobserved(none);
  data::BatchLayout layout = *samples.layout;
  layout.fill_up = 0;
  std::vector<double> ratios;
  for (const std::vector<data::Sample>& part : parts) {
    ++context.dropout->micro_batch;
    const std::vector<double> sums = infer::answer_sums(context, train_state.model, layout, part);
    ratios.insert(ratios.end(), sums.begin(), sums.end());
  }
  context.dropout.reset();
  const AtReference reference(train_state.optimizer, options.initial, state.compute);
  size_t at = 0;
  for (const std::vector<data::Sample>& part : parts) {
    for (const double sum : infer::answer_sums(context, train_state.model, layout, part))
      ratios[at++] -= sum;
  }
  return ratios;
}

}  // namespace

double kl_term(const TrainState& train_state, const StepOptions& options,
               const objective::ForwardContext& context, const data::StepSamples& samples,
               const GlobalBatch& whole, const StepState& state) {
  std::exception_ptr failed;
  std::vector<double> all;
  options.ranks->at("step " + std::to_string(state.step + 1) + ", its KL divergence");
  try {
    all = log_ratios(train_state, options, context, samples, whole, state);
  } catch (const std::exception& error) {
    if (options.ranks->alone() || !is_out_of_memory(error)) throw;
    failed = std::current_exception();
  }
  if (options.ranks->alone()) return infer::kl_estimate(all);
  std::vector<uint64_t> bits;
  for (const double ratio : all) bits.push_back(std::bit_cast<uint64_t>(ratio));
  all.clear();
  bool elsewhere = false;
  for (const std::string& text :
       options.ranks->exchange(failed ? kOutOfMemory : io::Json(bits).dump())) {
    elsewhere |= text == kOutOfMemory;
    if (elsewhere) continue;
    for (const uint64_t ratio : io::Json::parse(text).get<std::vector<uint64_t>>())
      all.push_back(std::bit_cast<double>(ratio));
  }
  if (failed) std::rethrow_exception(failed);
  if (elsewhere) throw OutOfMemoryElsewhere();
  return infer::kl_estimate(all);
}

}  // namespace lft::train
