// A model with a quantized decoder and one with the dequantised weights.
#pragma once
#include "models/lora/inject.h"
#include "models/lora/inject_select.h"
#include "models/loss_sum.h"
#include "models/tiny.h"

namespace lft::test {

/// In float32: the same loss and gradients, bit for bit.
inline void expect_trains_as_its_dense_twin(BaseStorage storage) {
  const family::ModelConfig config = tiny_config();
  std::vector<Model> models = {make_llava(config), make_llava(config)};
  const auto decoder = [](Model& model) {
    return select_sites(linear_sites(*model), {"llm:all-linear"});
  };
  for (LinearSite& site : decoder(models[1])) {
    const at::NoGradGuard no_grad;
    site.layer->weight.copy_(quantize(site.layer->weight, storage, at::kCPU)->dense(at::kFloat));
  }
  for (LinearSite& site : decoder(models[0])) {
    const at::Tensor weight = site.layer->weight.detach().clone();
    site.layer->store(ops::quantize(weight, storage, at::kCPU));
    EXPECT_TRUE(site.layer->weight.is_meta());
    EXPECT_TRUE(site.layer->device().is_cpu());
    EXPECT_EQ(site.layer->stored().kind(), storage);
  }
  std::vector<std::vector<Trainable>> trainables;
  std::vector<double> losses;
  for (Model& model : models) {
    inject_lora(decoder(model), {.rank = 4, .alpha = 8, .dropout = 0}, 3);
    trainables.push_back(make_trainable(*model, {"projector"}));
    fill_adapters(model);
    const at::Tensor loss = test::loss_sum(model, tiny_batch(config));
    loss.backward();
    losses.push_back(loss.item<double>());
  }
  EXPECT_EQ(losses[0], losses[1]);
  ASSERT_EQ(trainables[0].size(), trainables[1].size());
  for (size_t i = 0; i < trainables[0].size(); ++i)
    EXPECT_TRUE(at::equal(trainables[0][i].tensor.grad(), trainables[1][i].tensor.grad()));
}

}  // namespace lft::test
