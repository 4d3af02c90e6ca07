// PiSSA: its initialisation, against a decomposition in double, and its
// saved form.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "models/lora/inject_select.h"
#include "models/lora/pissa.h"
#include "models/lora/registry.h"
#include "models/loss_sum.h"
#include "models/tiny.h"

namespace lft::test {
namespace {

constexpr double kUnit = 0x1p-24;  // float32 unit roundoff

class Pissa : public ::testing::Test {
 protected:
  Pissa() {
    const at::NoGradGuard no_grad;
    layer_->weight.copy_(original_);
  }
  std::shared_ptr<PissaAdapter> inject(uint64_t seed = 1) {
    inject_lora({{"layer", "llm", layer_}}, options_, seed);
    return std::dynamic_pointer_cast<PissaAdapter>(layer_->adapter());
  }
  const LoraOptions options_{.variant = "pissa", .rank = 3, .alpha = 7.5};
  const double scale_ = 2.5;
  at::Tensor original_ = fill_by_hash("layer.weight", {24, 16});
  Linear layer_{16, 24, false, at::TensorOptions(at::kFloat)};
};

TEST_F(Pissa, ResidualAndProductAreTheWeight) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    layer_->set_adapter(nullptr);
    const at::Tensor stored = original_.to(type);
    layer_->weight.set_data(stored.clone());
    const auto adapter = inject();
    EXPECT_EQ(layer_->weight.scalar_type(), type);
    const at::Tensor a = adapter->a_ri.to(at::kDouble), b = adapter->b_or.to(at::kDouble),
                     residual = layer_->weight.to(at::kDouble);
    // s B, each of its three products with A, two sums and the difference are
    // rounded once; the residual then to its own type.
    const double last = type == at::kFloat ? kUnit : 0x1p-8 + kUnit;
    const at::Tensor bound =
        1.01 * (5 * kUnit * at::mm(b.abs() * scale_, a.abs()) + last * residual.abs());
    const at::Tensor error = (residual + scale_ * at::mm(b, a) - stored.to(at::kDouble)).abs();
    EXPECT_TRUE(error.le(bound).all().item<bool>()) << (error / bound).max().item<double>();
    EXPECT_FALSE(layer_->weight.equal(stored));
  }
}

TEST_F(Pissa, AAndBAreTheLargestSingularDirections) {
  const auto adapter = inject();
  const auto [u, s, vh] = at::linalg_svd(original_.to(at::kDouble), false);
  const at::Tensor want = at::mm(u.narrow(1, 0, 3) * s.narrow(0, 0, 3), vh.narrow(0, 0, 3));
  const at::Tensor a = adapter->a_ri.to(at::kDouble), b = adapter->b_or.to(at::kDouble);
  EXPECT_LT((scale_ * at::mm(b, a) - want).abs().max().item<double>(), 1e-5);
  const at::Tensor squares = at::diag(s.narrow(0, 0, 3) / scale_);
  EXPECT_LT((at::mm(a, a.t()) - squares).abs().max().item<double>(), 1e-5);
  EXPECT_LT((at::mm(b.t(), b) - squares).abs().max().item<double>(), 1e-5);
}

TEST_F(Pissa, IsAFunctionOfTheWeightAlone) {
  const auto first = inject(/*seed=*/1);
  const at::Tensor residual = layer_->weight.clone();
  layer_->set_adapter(nullptr);
  layer_->weight.copy_(original_);
  const auto second = inject(/*seed=*/2);
  EXPECT_TRUE(first->a_ri.equal(second->a_ri));
  EXPECT_TRUE(first->b_or.equal(second->b_or));
  EXPECT_TRUE(residual.equal(layer_->weight));
}

TEST_F(Pissa, IsSavedAsLoraOfTwiceTheRankForTheOriginalWeight) {
  const at::NoGradGuard no_grad;
  const auto adapter = inject();
  const at::Tensor a_0 = adapter->a_ri.clone(), b_0 = adapter->b_or.clone();
  adapter->a_ri.add_(fill_by_hash("a", {3, 16}), 0.1);
  adapter->b_or.add_(fill_by_hash("b", {24, 3}), 0.1);
  const NamedTensors saved = adapter->saved();
  EXPECT_TRUE(saved.at("lora_A").equal(at::cat({adapter->a_ri, a_0}, 0)));
  EXPECT_TRUE(saved.at("lora_B").equal(at::cat({adapter->b_or, -b_0}, 1)));
  const LoraOptions as = saved_options(options_);
  EXPECT_EQ(as.variant, "lora");
  EXPECT_EQ(as.rank, 6);
  EXPECT_EQ(as.alpha, 15);
  EXPECT_EQ(lora_scale(as), scale_);
  const at::Tensor x = fill_by_hash("x", {5, 16}), want = layer_->forward(x);
  layer_->set_adapter(nullptr);
  layer_->weight.copy_(original_);
  inject_lora({{"layer", "llm", layer_}}, as, 1);
  auto parameters = layer_->adapter()->named_parameters();
  for (const auto &[name, tensor] : saved) parameters[name].copy_(tensor);
  EXPECT_LT((layer_->forward(x) - want).abs().max().item<double>(), 1e-5);
}

TEST_F(Pissa, AtItsStartItIsTheLayerAgain) {
  const at::NoGradGuard no_grad;
  const at::Tensor x = fill_by_hash("x", {5, 16}), before = layer_->forward(x);
  const auto adapter = inject();
  const at::Tensor fresh = layer_->forward(x);
  adapter->a_ri.add_(1);
  adapter->b_or.add_(1);
  const auto start = adapter->at_start();
  layer_->set_adapter(start);
  EXPECT_TRUE(layer_->forward(x).equal(fresh));
  EXPECT_LT((fresh - before).abs().max().item<double>(), 1e-5);
  for (auto &parameter : start->named_parameters()) parameter.value().zero_();
  EXPECT_TRUE(adapter->at_start()->named_parameters()["lora_A"].any().item<bool>()) << "a copy";
}

TEST_F(Pissa, RefusesCodesAndRanksThatCannotBeSaved) {
  const auto inject_into = [](Linear &layer, int64_t rank) {
    inject_lora({{"layer", "llm", layer}}, {.variant = "pissa", .rank = rank}, 1);
  };
  EXPECT_EQ(error_of([&] { inject_into(layer_, 9); }, ErrorKind::kUsage).expected,
            "1 to 8 (part of the smaller side of the layer's weight)");
  Linear coded(64, 64, false, at::TensorOptions(at::kFloat));
  coded->store(ops::quantize(fill_by_hash("coded", {64, 64}), ops::BaseStorage::kNf4, at::kCPU));
  EXPECT_NE(error_of([&] { inject_into(coded, 2); }, ErrorKind::kUsage)
                .what.find("this one is quantized"),
            std::string::npos);
  Linear shape(16, 24, false, at::TensorOptions(at::kFloat).device(at::kMeta));
  inject_lora({{"layer", "llm", shape}}, options_, 1);
  EXPECT_TRUE(shape->adapter()->named_parameters()["lora_A"].is_meta());
}

TEST(PissaModel, AFreshAdapterChangesNothingAndEveryTensorHasAGradient) {
  const family::ModelConfig config = tiny_config();
  Model model = make_llava(config);
  const family::Batch batch = tiny_batch(config);
  const at::Tensor before = model->supervised_logprobs(batch).detach();
  inject_lora(select_sites(linear_sites(*model), {"llm:all-linear"}),
              {.variant = "pissa", .rank = 4, .alpha = 8}, 5);
  const std::vector<Trainable> trainables = make_trainable(*model, {});
  ASSERT_EQ(trainables.size(), 14u * 2);
  EXPECT_LT((model->supervised_logprobs(batch) - before).abs().max().item<double>(), 1e-4);
  test::loss_sum(model, batch).backward();
  for (const Trainable &trainable : trainables)
    EXPECT_TRUE(trainable.tensor.grad().any().item<bool>()) << trainable.name;
}

}  // namespace
}  // namespace lft::test
