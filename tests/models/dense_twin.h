// A model with a quantized decoder and one with the dequantised weights.
#pragma once
#include "models/lora/inject.h"
#include "models/lora/inject_select.h"
#include "models/loss_sum.h"
#include "models/ops/weight/expert_weight.h"
#include "models/tiny.h"

namespace lft::test {

/// A decoder whose second layer has experts instead of an MLP, with a shared one.
inline family::ModelConfig tiny_expert_config() {
  family::ModelConfig config = tiny_config();
  config.text.experts = {.count = 4, .per_token = 2, .intermediate = 16, .shared_intermediate = 32};
  config.text.sparse = {false, true};
  return config;
}

/// In float32: the same loss and gradients, bit for bit.
inline void expect_trains_as_its_dense_twin(BaseStorage storage,
                                            const family::ModelConfig& config = tiny_config()) {
  std::vector<Model> models = {make_llava(config), make_llava(config)};
  const auto decoder = [](Model& model) {
    std::vector<LinearSite> sites = select_sites(linear_sites(*model), {"llm:all-linear"});
    std::erase_if(sites, [](const LinearSite& site) { return site.name.ends_with("expert_gate"); });
    for (const LinearSite& site : linear_sites(*model))
      if (site.layer->experts > 0) sites.push_back(site);
    return sites;
  };
  const auto coded = [&](const LinearSite& site) {
    const at::Tensor weight = site.layer->weight.detach().clone();
    return site.layer->experts > 0
               ? ops::quantize_experts(weight, site.layer->experts, storage, at::kCPU)
               : ops::quantize(weight, storage, at::kCPU);
  };
  for (LinearSite& site : decoder(models[1])) {
    const at::NoGradGuard no_grad;
    site.layer->weight.copy_(coded(site)->dense(at::kFloat));
  }
  for (LinearSite& site : decoder(models[0])) {
    site.layer->store(coded(site));
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
