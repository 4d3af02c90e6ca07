#include "src/debug/isolate/forward_faults.h"

#include <algorithm>
#include <cmath>

#include "models/lora/without_adapters.h"
#include "models/objective/forward_loss.h"
#include "src/base/text.h"
#include "src/data/batch.h"
#include "src/debug/nan/nan_run.h"

namespace lft::debug {
namespace {

constexpr double kClearlyApart = 0.5;  // nats

data::BatchLayout plain_layout(const train::Run& run) {
  data::BatchLayout layout = train::batch_layout(run);
  layout.fill_up = 0;
  return layout;
}

/// Mean over the supervised tokens, in FP32.
double fp32_loss(train::Run& run, const data::StepSamples& samples) {
  const at::NoGradGuard no_grad;
  double sum = 0;
  int64_t supervised = 0;
  for (const std::vector<data::Sample>& micro : samples.micro) {
    const int64_t tokens = train::supervised_tokens(micro);
    if (tokens == 0) continue;
    const family::Batch batch = data::make_batch(plain_layout(run), micro);
    sum += objective::forward_loss({.compute = at::kFloat}, run.model.model, batch).item<double>();
    supervised += tokens;
  }
  return sum / static_cast<double>(supervised);
}

std::string loss_text(double loss) {
  return std::isfinite(loss) ? format_number(loss, "%.4f") : "not finite";
}

bool is_zero(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.is_meta() && !tensor.any().item<bool>();
}

}  // namespace

std::optional<ForwardFault> find_not_finite(train::Run& run, const data::StepSamples& samples) {
  HuntInput input = hunt_input(run, run.model, samples, run.state.step + 1);
  std::erase_if(input.trainables,
                [](const lora::Trainable& trainable) { return !trainable.tensor.requires_grad(); });
  input.compute = run.state.compute;
  input.recompute = run.state.recompute;
  if (run.scaler.state().enabled) input.loss_scale = run.scaler.state().scale;
  const Hunt hunt = hunt_non_finite(run.model.model, input);
  if (!hunt.found()) return std::nullopt;
  ForwardFault fault{.name = "values that are not finite",
                     .next = "see lft debug nan for every value on the way"};
  for (const BadGiven& given : hunt.given) fault.evidence.push_back(given.name + ": " + given.text);
  const MicroHunt* const first = hunt.first();
  if (first == nullptr) return fault;
  const auto overflow =
      std::ranges::find(first->hints, std::string("overflow of fp16"), &train::Hint::name);
  const train::PassReport& pass = first->pass;
  const std::optional<train::BadValue>& bad = pass.forward ? pass.forward : pass.backward;
  const bool in_fp32 = first->fp32 && first->fp32->finite();
  if (overflow != first->hints.end() || (in_fp32 && run.state.compute == at::kHalf)) {
    fault.name = "overflow of fp16";
    fault.next = "set precision.compute to bf16 or fp32, whose range contains these values";
  }
  if (bad) {
    const std::string where = bad->module.empty() ? "outside of any module" : bad->module;
    fault.name += " in " + where;
    fault.evidence.push_back((pass.forward ? "the first value: " : "the first gradient: ") + where +
                             ", " + bad->op + ", " + train::facts_text(bad->value));
  }
  if (in_fp32) fault.evidence.push_back("the same pass in fp32 is finite");
  for (const train::Hint& hint : first->hints)
    fault.evidence.push_back(hint.name + ": " + hint.evidence);
  return fault;
}

std::optional<ForwardFault> find_dead_output(train::Run& run, const data::StepSamples& samples) {
  const auto micro = std::ranges::find_if(
      samples.micro, [](const auto& each) { return train::supervised_tokens(each) > 0; });
  if (micro == samples.micro.end()) return std::nullopt;
  const family::Batch batch = data::make_batch(plain_layout(run), *micro);
  const at::NoGradGuard no_grad;
  const train::PassReport pass = train::watch_pass(
      {.loss =
           [&] { return objective::forward_loss({.compute = at::kFloat}, run.model.model, batch); },
       .backward = false,
       .ops = false});
  // Inner modules end before outer ones, and earlier before later.
  const auto dead = std::ranges::find(pass.modules, 0.0, &train::ModuleRow::largest);
  if (dead == pass.modules.end()) return std::nullopt;
  ForwardFault fault{.name = "zeros only out of " + dead->module,
                     .next =
                         "the base is damaged there, or not what it should be: lft debug base "
                         "looks at its weights, a fresh copy of the base mends it"};
  fault.evidence.push_back(
      "every element of its output is 0 on the whole batch, so that nothing "
      "before it has a gradient, and what it gives to learns nothing from it");
  for (const auto& parameter : run.model.model->named_parameters()) {
    if (parameter.key().starts_with(dead->module + ".") && is_zero(parameter.value()))
      fault.evidence.push_back("all zeros: " + parameter.key());
  }
  return fault;
}

std::optional<ForwardFault> find_harmful_adapter(train::Run& run,
                                                 const data::StepSamples& samples) {
  const std::string& from = run.recipe.lora.init_from;
  if (from.empty()) return std::nullopt;
  const double with = fp32_loss(run, samples),
               guessing = std::log(static_cast<double>(run.model.model->config.text.vocab));
  if (with <= guessing + kClearlyApart) return std::nullopt;
  double without = 0;
  {
    const lora::WithoutAdapters bare_base(*run.model.model);
    without = fp32_loss(run, samples);
  }
  if (!std::isfinite(without) || with - without < kClearlyApart) return std::nullopt;
  return ForwardFault{
      .name = "the adapter of lora.init_from",
      .evidence = {"loss before the first step: " + loss_text(with) + " with it, " +
                       loss_text(without) + " without it; the uniform-guess loss is " +
                       format_number(guessing, "%.4f"),
                   "it is " + from},
      .next = "train without lora.init_from, or from an adapter that was made for this base"};
}

}  // namespace lft::debug
