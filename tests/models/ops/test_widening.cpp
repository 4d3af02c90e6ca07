// A base stored in BF16 or FP16 and computed in float32, as after a recovery: weights are widened
// one at a time, in both passes, and no widened copy remains. Measured in bytes that LibTorch has
// allocated on the CPU.
#include "models/base/call.h"
#include "models/lora/inject.h"
#include "models/lora/inject_select.h"
#include "models/loss_sum.h"
#include "models/ops/core/precision.h"
#include "models/ops/elementwise/token_logprobs.h"
#include "models/ops/linear/linear.h"
#include "models/tiny.h"
#include "src/hf/weights_load.h"
#include "support/counting_allocator.h"

namespace lft::test::widening_test {
namespace {

/// Weights much larger than the activations: layers of 4.7 million, a head of 5 slices.
family::ModelConfig wide_config() {
  Json json = tiny_json();
  json["text_config"].update({{"hidden_size", 768},
                              {"intermediate_size", 2048},
                              {"num_hidden_layers", 3},
                              {"vocab_size", 20000}});
  return llava::parse_llava(json, "wide");
}

struct Measured {
  int64_t passes = 0;   // peak during forward and backward beyond the model
  int64_t left = 0;     // still allocated afterwards
  int64_t between = 0;  // kept by the graph between the passes
};

Measured measure(at::ScalarType stored) {
  at::manual_seed(1);
  Model model = build_model(wide_config(), stored);
  {
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : model->parameters()) parameter.normal_(0, 0.02);
  }
  inject_lora(select_sites(linear_sites(*model), {"llm:all-linear"}),
              {.variant = "lora", .rank = 2, .alpha = 4, .dropout = 0}, 1);
  make_trainable(*model, {});
  const family::Batch batch = tiny_batch(wide_config());
  const int64_t before = CountingAllocator::live();
  CountingAllocator::reset_peak();
  Measured measured;
  {
    const at::Tensor loss = test::loss_sum(model, batch);
    measured.between = CountingAllocator::live() - before;
    loss.backward();
    EXPECT_TRUE(at::isfinite(loss).item<bool>());
  }
  measured.passes = CountingAllocator::peak() - before;
  for (at::Tensor& parameter : model->parameters()) parameter.mutable_grad() = at::Tensor();
  measured.left = CountingAllocator::live() - before;
  return measured;
}

TEST(Widening, HoldsOneWidenedWeightAtATimeAndKeepsNone) {
  const CountingAllocator counting;
  const Measured wide = measure(at::kFloat);  // nothing to widen: activations, and the graph
  const int64_t largest = 4 * 768 * 2048, slice = 4 * 4096 * 768;
  static_assert(4 * 4096 * 768 > 4 * 768 * 2048);
  for (const at::ScalarType stored : {at::kBFloat16, at::kHalf}) {
    const Measured half = measure(stored);
    // One weight, or one slice of the head, in float32; and a little for norms' weights.
    EXPECT_LE(half.passes, wide.passes + std::max(largest, slice) + (64 << 10)) << stored;
    EXPECT_GE(half.passes, largest) << "a weight has to be widened at some time";
    EXPECT_LE(half.between, wide.between + (64 << 10)) << "the graph keeps no widened weight";
    EXPECT_LE(half.left, wide.left + (64 << 10)) << stored;
  }
}

/// Bytes beyond the model that all_logits() needs at its peak.
int64_t measure_logits(Model& model, const family::Batch& batch, at::Tensor* logits) {
  const at::NoGradGuard no_grad;
  const int64_t before = CountingAllocator::live();
  CountingAllocator::reset_peak();
  *logits = model->all_logits(batch);
  return CountingAllocator::peak() - before;
}

Model random_model(at::ScalarType stored) {
  at::manual_seed(1);
  Model model = build_model(wide_config(), stored);
  const at::NoGradGuard no_grad;
  for (at::Tensor& parameter : model->parameters()) parameter.normal_(0, 0.02);
  return model;
}

/// The path with a graph casts the whole head: it is used if an input requires a
/// gradient.
at::Tensor logits_with_graph(Model& model, const family::Batch& batch) {
  const at::Tensor embeds = model->embed(batch).embeds_btd.detach().requires_grad_(true);
  return model->language_model->forward(embeds, at::Tensor(), at::Tensor(), nullptr).detach();
}

TEST(Widening, AllLogitsWidenASliceOfTheHeadAtATime) {
  const CountingAllocator counting;
  const family::Batch batch = tiny_batch(wide_config());
  at::Tensor logits;
  Model wide_model = random_model(at::kFloat);
  const int64_t wide = measure_logits(wide_model, batch, &logits);
  const int64_t slice = 4 * 4096 * 768, head = 4 * 20000 * 768,
                part = logits.numel() / 20000 * 4096 * 4;
  static_assert(4 * 4096 * 768 < 4 * 20000 * 768 / 4);
  for (const at::ScalarType stored : {at::kBFloat16, at::kHalf}) {
    Model model = random_model(stored);
    const int64_t narrow = measure_logits(model, batch, &logits);
    EXPECT_LE(narrow, wide + slice + part + (64 << 10)) << stored;
    EXPECT_LT(narrow, head) << "the test's head is the largest thing in it";
    EXPECT_TRUE(at::equal(logits, logits_with_graph(model, batch))) << stored;
    EXPECT_TRUE(at::equal(model->all_logits(batch), logits))
        << "grad mode alone, where nothing is trained, changes no bit";
  }
}

TEST(Widening, SlicedLogitsHaveTheBitsOfTheWholeHead) {
  for (const at::ScalarType stored : {at::kFloat, at::kBFloat16, at::kHalf}) {
    Model model = random_model(stored);
    for (const at::ScalarType compute : {at::kFloat, at::kBFloat16, at::kHalf}) {
      const ComputeDtypeGuard guard(compute);
      const at::NoGradGuard no_grad;
      at::manual_seed(2);
      for (const int64_t rows :
           {1, 3, 40}) {  // generation's one row per sample, a small batch, a whole prompt
        const at::Tensor hidden = at::randn({rows, 2, 768});
        const at::Tensor whole =
            linear(hidden, model->language_model->lm_head->weight, at::Tensor()).to(at::kFloat);
        const at::Tensor sliced = head_logits(hidden, model->language_model->lm_head->weight);
        EXPECT_EQ(sliced.scalar_type(), at::kFloat);
        EXPECT_TRUE(at::equal(sliced, whole))
            << stored << " computed in " << compute << ", " << rows << " rows, off by "
            << max_abs_diff(sliced, whole);
      }
    }
  }
}

}  // namespace
}  // namespace lft::test::widening_test
