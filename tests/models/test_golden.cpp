// The whole model against transformers and PEFT, on the numbers of tests/goldens/models/llava.json
// (float32, tiny models, hashed weights).
#include "models/lora/inject.h"
#include "models/lora/inject_select.h"
#include "models/loss_sum.h"
#include "models/tiny.h"

namespace lft::test::golden_test {
namespace {

// Sums of a few hundred float32 products in another order: 1e-5 is 20 times the observed
// error.
constexpr double kTolerance = 1e-5;

Json golden() {
  static const Json json =
      Json::parse(std::ifstream(LFT_SOURCE_DIR "/tests/goldens/models/llava.json"));
  return json;
}
at::Tensor tensor_of(const Json& values) {
  return at::tensor(values.get<std::vector<double>>(), at::kDouble);
}

class Golden : public ::testing::TestWithParam<const char*> {
 protected:
  Json entry_ = golden()["cases"][GetParam()];
  family::ModelConfig config_ = llava::parse_llava(entry_["config"], "golden");
  Model model_ = make_llava(config_);
  family::Batch batch_ = tiny_batch(config_);
};

TEST_P(Golden, BatchIsTheGeneratorsBatch) {
  const auto ids = entry_["input_ids"].get<std::vector<std::vector<int64_t>>>(),
             labels = entry_["labels"].get<std::vector<std::vector<int64_t>>>();
  for (int64_t r = 0; r < 3; ++r) {
    EXPECT_TRUE(
        at::equal(batch_.input_ids_bt[r], at::tensor(ids[static_cast<size_t>(r)], at::kLong)));
    EXPECT_TRUE(
        at::equal(batch_.labels_bt[r], at::tensor(labels[static_cast<size_t>(r)], at::kLong)));
  }
}

TEST_P(Golden, LogprobsAndLogitsAreTransformers) {
  const at::NoGradGuard no_grad;
  EXPECT_LT(max_abs_diff(model_->supervised_logprobs(batch_), tensor_of(entry_["logprobs"])),
            kTolerance);
  KvCache cache;
  EXPECT_LT(
      max_abs_diff(model_->next_logits(batch_, cache).flatten(), tensor_of(entry_["last_logits"])),
      3 * kTolerance);
}

TEST_P(Golden, LoraLogprobsAndGradientsArePefts) {
  LoraOptions options{.variant = std::string(GetParam()) == "plain" ? "rslora" : "lora",
                      .rank = 3,
                      .alpha = 7,
                      .dropout = 0.5};
  inject_lora(select_sites(linear_sites(*model_),
                           {"llm:all-linear", "projector:all-linear", "vision:all-linear"}),
              options, 1);
  fill_adapters(model_);
  const std::vector<Trainable> trainables = make_trainable(*model_, {});
  const at::Tensor logprobs =
      model_->supervised_logprobs(batch_);  // outside a DropoutGuard: no dropout
  EXPECT_LT(max_abs_diff(logprobs, tensor_of(entry_["lora_logprobs"])), kTolerance);
  test::loss_sum(model_, batch_).backward();
  size_t reached = 0, compared = 0;
  for (const Trainable& trainable : trainables) {
    if (!trainable.tensor.grad().defined()) continue;
    ++reached;
    const Json& norms = entry_["lora_gradient_norms"];
    ASSERT_TRUE(norms.contains(trainable.name)) << trainable.name;
    const double want = norms[trainable.name], got = trainable.tensor.grad().norm().item<double>();
    EXPECT_NEAR(got, want, 1e-4 * want + 1e-6) << trainable.name;
    if (!entry_["lora_gradients"].contains(trainable.name)) continue;
    ++compared;
    EXPECT_LT(relative_error(trainable.tensor.grad().flatten(),
                             tensor_of(entry_["lora_gradients"][trainable.name])),
              1e-4)
        << trainable.name;
  }
  EXPECT_EQ(reached, entry_["lora_gradient_norms"].size());
  EXPECT_EQ(compared, entry_["lora_gradients"].size());
}

INSTANTIATE_TEST_SUITE_P(Cases, Golden,
                         ::testing::Values("plain", "gqa_llama3_bias", "tied_linear_full"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace lft::test::golden_test
