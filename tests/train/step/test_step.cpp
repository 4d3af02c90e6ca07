// One optimizer step on a tiny random LLaVA: its normaliser, what it changes and what it
// leaves unchanged.
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/common/error.h"
#include "models/lora/inject_select.h"
#include "models/loss_sum.h"
#include "src/data/batch.h"
#include "src/train/step/samples_ahead.h"
#include "support/expect_error.h"
#include "train/image_sample.h"
#include "train/tiny_steps.h"

namespace lft::step_test {
using namespace lft::test;
namespace {

const LoaderOptions kInOrder = {.batch_size = 2, .grad_accum = 2, .workers = 0, .shuffle = false};

class Step : public TinySteps {
 protected:
  static Sample sample(uint64_t seed, int64_t length, int64_t supervised) {
    return test::image_sample(seed, length, supervised);
  }

  LoaderOptions in_order() const {
    LoaderOptions loading = kInOrder;
    loading.layout = layout;
    return loading;
  }

  std::vector<at::Tensor> everything() const {
    std::vector<at::Tensor> tensors;
    for (const Slot& slot : optimizer->slots()) {
      for (const at::Tensor& tensor : {slot.param.tensor, slot.moment("exp_avg"),
                                       slot.moment("exp_avg_sq"), at::full({}, slot.steps)})
        tensors.push_back(tensor.detach().clone());
    }
    return tensors;
  }

  static void expect_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i], b[i])) << i;
  }
};

TEST_F(Step, OneTimesEightEqualsEightTimesOne) {
  std::vector<Sample> rows;
  for (int i = 0; i < 8; ++i) rows.push_back(sample(i, 6 + 3 * i, 1 + (5 * i) % 7));
  build();
  const StepOutcome whole = take({rows});
  const std::vector<at::Tensor> after_whole = everything();
  build();
  std::vector<std::vector<Sample>> single;
  for (const Sample& row : rows) single.push_back({row});
  const StepOutcome split = take(single);
  EXPECT_EQ(whole.supervised, split.supervised);
  EXPECT_EQ(whole.tokens, split.tokens);
  EXPECT_NEAR(whole.loss, split.loss, 1e-6 * whole.loss);
  EXPECT_NEAR(whole.stats.norm, split.stats.norm, 1e-5 * whole.stats.norm);
  const std::vector<at::Tensor> after_split = everything();
  // Sums of float32 in another order: the first moment is 0.1 of the gradient.
  for (size_t i = 1; i < after_whole.size(); i += 4) {
    EXPECT_LE((after_whole[i] - after_split[i]).abs().max().item<float>(), 1e-5 * whole.stats.norm)
        << i;
  }
}

TEST_F(Step, LossIsTheMeanOverSupervisedTokensOfTheWholeGlobalBatch) {
  build();
  const std::vector<Sample> rows = {sample(1, 9, 1), sample(2, 9, 8)};
  double sum = 0;
  for (const Sample& row : rows) {
    at::NoGradGuard no_grad;
    sum += test::loss_sum(model, collate({row}, layout->encode, at::kCPU)).item<double>();
  }
  EXPECT_NEAR(take({{rows[0]}, {rows[1]}}).loss, sum / 9, 1e-6);
}

TEST_F(Step, ABatchWithoutSupervisedTokensMovesNothingButTheStepNumber) {
  build();
  take({{sample(1, 9, 3)}});
  const std::vector<at::Tensor> before = everything();
  const StepOutcome outcome = take({{sample(2, 9, 0)}, {sample(3, 5, 0)}});
  EXPECT_EQ(outcome.result, StepResult::kEmpty);
  EXPECT_EQ(outcome.tokens, 17 + 9 + 17 + 5);
  EXPECT_EQ(state.step, 2);
  EXPECT_EQ(state.scheduled, 1);
  expect_bits(before, everything());
}

TEST_F(Step, AMicroBatchWithoutSupervisedTokensChangesNoBit) {
  build();
  take({{sample(1, 9, 3)}, {sample(4, 7, 2)}});
  const std::vector<at::Tensor> without = everything();
  build();
  take({{sample(1, 9, 3)}, {sample(2, 9, 0)}, {sample(4, 7, 2)}});
  expect_bits(without, everything());
}

TEST_F(Step, ClippingScalesToTheGlobalNorm) {
  build(/*clip=*/0);
  const StepOutcome free = take({{sample(1, 9, 3)}});
  const at::Tensor average = optimizer->slots()[0].moment("exp_avg").clone();
  build(/*clip=*/free.stats.norm / 4);
  const StepOutcome clipped = take({{sample(1, 9, 3)}});
  EXPECT_EQ(clipped.stats.norm, free.stats.norm);  // reported before clipping
  const double factor = free.stats.norm / 4 / (free.stats.norm + 1e-6);
  EXPECT_TRUE(at::allclose(optimizer->slots()[0].moment("exp_avg"), average * factor, 1e-5, 0));
}

TEST_F(Step, NonFiniteMovesNothing) {
  build();
  take({{sample(1, 9, 3)}});
  {
    at::NoGradGuard no_grad;  // a frozen weight, so that loss and gradients go bad
    select_sites(linear_sites(*model), {"llm:layers.0.mlp.up_proj"})
        .at(0)
        .layer->weight.fill_(std::numeric_limits<float>::infinity());
  }
  const std::vector<at::Tensor> before = everything();
  const StepOutcome outcome = take({{sample(5, 9, 3)}, {sample(6, 9, 3)}});
  EXPECT_EQ(outcome.result, StepResult::kNonFinite);
  EXPECT_EQ(outcome.reason, "the loss is not finite");
  expect_bits(before, everything());
  EXPECT_EQ(state.step, 1);
  for (const at::Tensor& gradient : optimizer->gradients()) EXPECT_FALSE(gradient.defined());
}

TEST_F(Step, ProjectorWithoutAnImageKeepsWeightMomentsAndItsOwnCount) {
  build();
  Sample text = sample(1, 12, 4);
  text.images.clear();
  text.input_ids.erase(text.input_ids.begin() + 1, text.input_ids.begin() + 17);
  text.labels.erase(text.labels.begin() + 1, text.labels.begin() + 17);
  take({{text}});
  int untouched = 0;
  for (const Slot& slot : optimizer->slots()) {
    if (slot.param.scope != "projector") {
      EXPECT_EQ(slot.steps, 1) << slot.param.name;
      continue;
    }
    ++untouched;
    EXPECT_EQ(slot.steps, 0) << slot.param.name;
  }
  EXPECT_EQ(untouched, 4);
}

TEST_F(Step, ABatchWithoutAnImageCannotTeachTheProjectorAlone) {
  build();
  std::vector<Trainable> projector;
  for (Trainable& trainable : trainables) {
    if (trainable.scope == "projector") projector.push_back(trainable);
    if (trainable.scope != "projector") trainable.tensor.set_requires_grad(false);
  }
  optimizer =
      std::make_unique<Optimizer>(projector, param_groups(projector, 1e-2, -1), make_adamw({}));
  Sample text = sample(1, 12, 4);
  text.images.clear();
  text.input_ids.erase(text.input_ids.begin() + 1, text.input_ids.begin() + 17);
  text.labels.erase(text.labels.begin() + 1, text.labels.begin() + 17);
  const std::vector<at::Tensor> before = everything();
  const StepOutcome outcome = take({{text}});
  EXPECT_EQ(outcome.result, StepResult::kEmpty);
  EXPECT_EQ(outcome.reason, "no image for what is trained");
  expect_bits(before, everything());
  EXPECT_EQ(take({{text}, {sample(2, 9, 3)}}).result, StepResult::kTaken);
}

TEST_F(Step, AForwardPassUnderNoGradIsAnErrorNotASkip) {
  build();
  const at::NoGradGuard no_grad;
  EXPECT_LFT_ERROR(ErrorKind::kInternal, "no-grad", take({{sample(1, 9, 3)}}));
}

TEST_F(Step, AnOverflowUnderALossScaleMovesTheScaleAlone) {
  build();
  take({{sample(1, 9, 3)}});
  scaler = LossScaler({.scale = 1024});
  options.gradients_ready = [](int64_t, Optimizer& adam) {
    adam.slots()[3].param.tensor.mutable_grad().fill_(std::numeric_limits<float>::infinity());
  };
  const std::vector<at::Tensor> before = everything();
  const StepOutcome outcome = take({{sample(5, 9, 3)}});
  EXPECT_EQ(outcome.result, StepResult::kOverflow);
  EXPECT_EQ(outcome.stats.first_bad, 3);
  expect_bits(before, everything());
  EXPECT_EQ(scaler.state().scale, 512);
  EXPECT_EQ(state.step, 2);
  EXPECT_EQ(state.scheduled, 1);
}

TEST_F(Step, TheLossScaleIsNotSeenInWhatIsLearned) {
  build();
  const StepOutcome plain = take({{sample(1, 9, 3)}, {sample(4, 7, 2)}});
  const std::vector<at::Tensor> expected = everything();
  build();
  scaler = LossScaler({.scale = 4096});  // a power of two: every bit is preserved in float32
  const StepOutcome scaled = take({{sample(1, 9, 3)}, {sample(4, 7, 2)}});
  EXPECT_EQ(scaled.loss, plain.loss);
  EXPECT_EQ(scaled.stats.norm, plain.stats.norm);
  expect_bits(expected, everything());
}

/// Samples of the tests, in the order of their numbers.
class Rows : public Dataset {
 public:
  Rows(std::vector<Sample> samples, int64_t bad) : samples_(std::move(samples)), bad_(bad) {}
  int64_t size() const override { return static_cast<int64_t>(samples_.size()); }
  Sample get(int64_t index) const override {
    if (index == bad_) throw Error(ErrorKind::kInput, "row " + std::to_string(index) + " is bad");
    return samples_.at(static_cast<size_t>(index));
  }
  std::string id(int64_t index) const override {
    return samples_.at(static_cast<size_t>(index)).id;
  }
  std::vector<std::string> image_paths(int64_t) const override { return {}; }
  Row row(int64_t) const override { return {}; }
  std::string hash() const override { return ""; }

 private:
  std::vector<Sample> samples_;
  int64_t bad_;
};

/// The hook runs when the update is launched and before the host has its result; the samples that
/// it fetches are those the step would have received, and its first micro-batch is used.
TEST_F(Step, SamplesFetchedWhileTheDeviceWorksChangeNothing) {
  std::vector<Sample> samples;
  for (uint64_t i = 0; i < 14; ++i)
    samples.push_back(sample(i, 6 + static_cast<int64_t>(i % 5), 3));
  const Rows rows(samples, /*bad=*/-1);
  const Schedule schedule = Schedule{.kind = Schedule::Kind::kConstant};
  for (const bool packed : {false, true}) {
    std::vector<std::vector<at::Tensor>> ends;
    std::vector<std::vector<double>> losses;
    for (const bool fetches : {false, true}) {
      build();
      layout->packed = packed;
      Loader loader(rows, in_order());
      SamplesAhead ahead(loader);
      int64_t fetched = 0;
      options.while_device_works = {};
      if (fetches) {
        options.while_device_works = [&] {
          EXPECT_EQ(optimizer->slots()[0].steps, fetched) << "the host has waited already";
          ahead.fetch();
          ++fetched;
        };
      }
      losses.emplace_back();
      for (int64_t step = 0; step < 5; ++step) {  // the fourth is the short one of its epoch
        const StepSamples next = ahead.next();
        ASSERT_EQ(next.made != nullptr, fetches && step > 0);
        losses.back().push_back(
            train_step({model, *optimizer, scaler, schedule}, options, next, state).loss);
        if (next.made) {
          EXPECT_FALSE(next.made->input_ids_bt.defined()) << "nobody took it";
        }
      }
      EXPECT_EQ(fetched, fetches ? 5 : 0);
      EXPECT_EQ(state.step, 5);  // samples fetched for the sixth are not consumed
      ends.push_back(everything());
    }
    EXPECT_EQ(losses[0], losses[1]);
    expect_bits(ends[0], ends[1]);
  }
}

/// A bad row is an error of the step that needs it, not of the one before.
TEST_F(Step, ABadSampleFetchedAheadIsTheErrorOfItsOwnStep) {
  build();
  std::vector<Sample> samples;
  for (uint64_t i = 0; i < 12; ++i) samples.push_back(sample(i, 7, 3));
  const Rows rows(samples, /*bad=*/6);
  Loader loader(rows, in_order());
  SamplesAhead ahead(loader);
  options.while_device_works = [&] { ahead.fetch(); };
  const StepSamples first = ahead.next();
  const Schedule schedule = Schedule{.kind = Schedule::Kind::kConstant};
  const StepOutcome taken =
      train_step({model, *optimizer, scaler, schedule}, options, first, state);
  EXPECT_EQ(taken.result, StepResult::kTaken);
  EXPECT_EQ(optimizer->slots()[0].steps, 1);
  EXPECT_LFT_ERROR(ErrorKind::kInput, "row 6 is bad", ahead.next());
  EXPECT_LFT_ERROR(ErrorKind::kInput, "row 6 is bad", ahead.next());
}

}  // namespace
}  // namespace lft::step_test
