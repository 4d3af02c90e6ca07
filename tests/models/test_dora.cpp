// DoRA against its formula under torch's autograd in double, and its merged weight.
#include "models/layers/recompute.h"
#include "models/lora/dora.h"
#include "models/lora/inject_select.h"
#include "models/loss_sum.h"
#include "models/ops/core/precision.h"
#include "models/ops/elementwise/dropout.h"
#include "models/tiny.h"

namespace lft::test::dora_test {
namespace {

constexpr double kScale = 1.75;

at::Tensor leaf(const std::string& name, at::IntArrayRef shape, at::ScalarType dtype) {
  return fill_by_hash(name, shape).to(dtype).set_requires_grad(true);
}

/// Rows of x over 12 inputs and 9 outputs, a magnitude that is not the norm, and the paper's
/// formula.
struct Reference {
  at::Tensor x = leaf("x", {2, 5, 12}, at::kDouble), w = fill_by_hash("w", {9, 12}).to(at::kDouble);
  at::Tensor bias = fill_by_hash("bias", {9}).to(at::kDouble);
  at::Tensor a = leaf("a", {3, 12}, at::kDouble), b = leaf("b", {9, 3}, at::kDouble);
  at::Tensor magnitude = leaf("magnitude_of_norm", {9, 1}, at::kDouble);

  at::Tensor weight() const {
    const at::Tensor directions = w + kScale * at::mm(b, a);
    return directions / directions.detach().norm(2, {1}, true) * magnitude;
  }
  /// factors: of dropout; undefined for none. PEFT drops the input of everything but the layer.
  at::Tensor forward(const at::Tensor& factors) const {
    if (!factors.defined()) return at::linear(x, weight(), bias);
    return at::linear(x, w, bias) + at::linear(x * factors, weight() - w);
  }
};

class Dora : public ::testing::Test {
 protected:
  Dora() {
    const at::NoGradGuard no_grad;
    layer_->weight.copy_(want_.w);
    layer_->bias.copy_(want_.bias);
  }
  std::shared_ptr<DoraAdapter> adapt(double dropout) {
    auto adapter = std::make_shared<DoraAdapter>(
        *layer_, LoraOptions{.variant = "dora", .rank = 3, .dropout = dropout}, kScale);
    const at::NoGradGuard no_grad;
    adapter->a_ri.copy_(want_.a);
    adapter->b_or.copy_(want_.b);
    adapter->magnitude_o.copy_(want_.magnitude.flatten());
    for (at::Tensor* tensor : {&adapter->a_ri, &adapter->b_or, &adapter->magnitude_o})
      tensor->set_requires_grad(true);
    layer_->set_adapter(adapter);
    return adapter;
  }
  Reference want_;
  Linear layer_{12, 9, true, at::TensorOptions(at::kFloat)};
};

TEST_F(Dora, ValuesAndGradientsAreThoseOfTheFormula) {
  for (const double p : {0.0, 0.4}) {
    want_ = Reference();
    const auto adapter = adapt(p);
    const DropoutGuard position({3, 1, 0});
    const DropoutMask mask = dropout_mask(p, "");
    const at::Tensor factors =
        p > 0 ? dropout(at::ones({10, 12}), mask).view({2, 5, 12}).to(at::kDouble) : at::Tensor();
    const at::Tensor x = want_.x.detach().to(at::kFloat).set_requires_grad(true);
    const at::Tensor got = layer_->forward(x), want = want_.forward(factors);
    EXPECT_LT(relative_error(got, want), 4e-6) << p;  // sums of 12 products in float32
    const at::Tensor upstream = fill_by_hash("upstream", got.sizes());
    got.backward(upstream);
    want.backward(upstream.to(at::kDouble));
    EXPECT_LT(relative_error(x.grad(), want_.x.grad()), 4e-6) << p;
    EXPECT_LT(relative_error(adapter->a_ri.grad(), want_.a.grad()), 4e-6) << p;
    EXPECT_LT(relative_error(adapter->b_or.grad(), want_.b.grad()), 4e-6) << p;
    EXPECT_LT(relative_error(adapter->magnitude_o.grad(), want_.magnitude.grad().flatten()), 4e-6)
        << p;
  }
}

TEST_F(Dora, InLowPrecisionTheGainIsOfFloat32) {
  const auto adapter = adapt(0);
  const at::NoGradGuard no_grad;
  layer_->weight.set_data(layer_->weight.to(at::kBFloat16));
  want_.w.copy_(layer_->weight);
  const ComputeDtypeGuard guard(at::kBFloat16);
  const at::Tensor got = layer_->forward(want_.x.detach().to(at::kFloat));
  EXPECT_EQ(got.scalar_type(), at::kBFloat16);
  EXPECT_LT(relative_error(got, want_.forward({})),
            4 * 0x1p-8);  // x, B A, the product and the result are rounded to 8 bits each
}

/// A value written over the kept norms stays until A, B or the weight changes, in place or by other
/// memory.
TEST_F(Dora, NormsAreComputedAgainOnlyAfterAChange) {
  const at::NoGradGuard no_grad;
  const std::shared_ptr<DoraAdapter> adapter = adapt(0);
  const void* const place = adapter->norm_o(layer_->stored()).const_data_ptr();
  const std::vector<std::function<void()>> changes = {
      [&] { adapter->a_ri.mul_(2); }, [&] { adapter->b_or.add_(1); },
      [&] { layer_->weight.mul_(3); }, [&] { layer_->weight.set_data(layer_->weight + 1); },
      [&] { layer_->store(ops::quantize(layer_->weight, ops::BaseStorage::kNf4, at::kCPU)); }};
  for (const std::function<void()>& change : changes) {
    at::Tensor kept_o = adapter->norm_o(layer_->stored());
    kept_o.fill_(-1);
    EXPECT_EQ(adapter->norm_o(layer_->stored())[0].item<float>(), -1);
    change();
    const at::Tensor now_o = adapter->norm_o(layer_->stored());
    EXPECT_TRUE(now_o.equal(dora_norm_o(layer_->stored(), adapter->a_ri, adapter->b_or, kScale)));
    EXPECT_EQ(now_o.const_data_ptr(), place);
  }
}

TEST_F(Dora, MergedIsTheWeightOfTheFormula) {
  const auto adapter = adapt(0);
  EXPECT_LT(relative_error(adapter->merged_oi(layer_->weight), want_.weight()), 1e-6);
}

TEST_F(Dora, ARowOfZerosStaysOne) {
  const at::NoGradGuard no_grad;
  layer_->weight[4].zero_();
  inject_lora({{"layer", "llm", layer_}}, {.variant = "dora", .rank = 3}, 1);
  const at::Tensor x = fill_by_hash("x", {5, 12});
  EXPECT_TRUE(layer_->forward(x).equal(at::linear(x, layer_->weight) + layer_->bias));
}

TEST(DoraModel, AFreshAdapterChangesNothingAndEveryTensorIsTrained) {
  const family::ModelConfig config = tiny_config();
  Model model = make_llava(config);
  const family::Batch batch = tiny_batch(config);
  const at::Tensor before = model->supervised_logprobs(batch).detach();
  inject_lora(select_sites(linear_sites(*model), {"llm:all-linear"}),
              {.variant = "dora", .rank = 4, .alpha = 8}, 5);
  const std::vector<Trainable> trainables = make_trainable(*model, {});
  ASSERT_EQ(trainables.size(), 14u * 3);
  EXPECT_EQ(trainables[2].name,
            "language_model.model.layers.0.self_attn.q_proj.lora_magnitude_vector");
  EXPECT_LT(max_abs_diff(model->supervised_logprobs(batch), before), 1e-5);
  test::loss_sum(model, batch).backward();
  for (const Trainable& trainable : trainables) {
    const bool is_a = trainable.name.ends_with(".lora_A.weight");  // behind a B of zeros
    ASSERT_TRUE(trainable.tensor.grad().defined()) << trainable.name;
    EXPECT_EQ(trainable.tensor.grad().any().item<bool>(), !is_a) << trainable.name;
  }
}

TEST(DoraModel, MergedEqualsAdapted) {
  const at::NoGradGuard no_grad;
  const family::ModelConfig config = tiny_config();
  Model model = make_llava(config);
  const family::Batch batch = tiny_batch(config);
  inject_lora(select_sites(linear_sites(*model), {"llm:all-linear", "projector:all-linear",
                                                  "vision:all-linear", "llm:lm_head"}),
              {.variant = "dora", .rank = 3, .alpha = 7}, 1);
  fill_adapters(model);
  const at::Tensor adapted = model->all_logits(batch);
  merge_adapters(*model);
  EXPECT_EQ(model->named_parameters().size(), tensors_of(config).size());
  EXPECT_LT(max_abs_diff(model->all_logits(batch), adapted), 1e-4);
}

TEST(DoraModel, BlocksRunAgainWithTheSameMasks) {
  const family::ModelConfig config = tiny_config();
  std::vector<at::Tensor> gradients[2];
  for (const int64_t every : {0, 1}) {
    Model model = make_llava(config);
    inject_lora(select_sites(linear_sites(*model), {"llm:all-linear"}),
                {.variant = "dora", .rank = 4, .alpha = 8, .dropout = 0.3}, 5);
    const std::vector<Trainable> trainables = make_trainable(*model, {});
    fill_adapters(model);
    const RecomputeGuard guard(every);
    const DropoutGuard position({3, 1, 0});
    test::loss_sum(model, tiny_batch(config)).backward();
    for (const Trainable& trainable : trainables)
      gradients[every].push_back(trainable.tensor.grad());
  }
  for (size_t i = 0; i < gradients[0].size(); ++i)
    EXPECT_TRUE(gradients[0][i].equal(gradients[1][i])) << i;
}

}  // namespace
}  // namespace lft::test::dora_test
