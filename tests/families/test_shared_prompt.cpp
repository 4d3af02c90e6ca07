// Both answers of a pair after one prompt: the numbers of two separate sequences.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "models/family/model.h"
#include "models/layers/recompute.h"
#include "models/lora/inject.h"
#include "models/lora/inject_select.h"
#include "models/ops/attention/attention.h"
#include "models/registry/registry.h"

namespace lft::test::shared_prompt_test {
namespace {

using Json = nlohmann::json;

constexpr int64_t kImageToken = 50;

Json config_of(const std::string& family) {
  Json json = {{"image_token_id", kImageToken},
               {"image_token_index", kImageToken},
               {"text_config",
                {{"hidden_size", 24},
                 {"intermediate_size", 40},
                 {"num_hidden_layers", 3},
                 {"num_attention_heads", 4},
                 {"num_key_value_heads", 2},
                 {"head_dim", 8},
                 {"vocab_size", 64}}},
               {"vision_config",
                {{"hidden_size", 16},
                 {"intermediate_size", 24},
                 {"num_hidden_layers", 3},
                 {"num_attention_heads", 2},
                 {"image_size", 28},
                 {"patch_size", 7}}}};
  json["model_type"] = family;
  Json &text = json["text_config"], &vision = json["vision_config"];
  if (family == "gemma3") {  // windows, and image tokens that see each other
    json["mm_tokens_per_image"] = 4;
    text["sliding_window"] = 5;
    text["sliding_window_pattern"] = 2;
  }
  if (family.starts_with("qwen")) {  // three axes of positions
    text.erase("head_dim");
    text["hidden_size"] = 32;
    text["rope_scaling"] = {{"type", "mrope"}, {"mrope_section", {2, 1, 1}}};
    vision = {{"depth", 3},       {"hidden_size", 16},        {"intermediate_size", 24},
              {"num_heads", 2},   {"patch_size", 7},          {"spatial_merge_size", 2},
              {"in_channels", 3}, {"temporal_patch_size", 2}, {"out_hidden_size", 32}};
    if (family.starts_with("qwen3")) {
      text["head_dim"] = 8;
      vision["num_position_embeddings"] = 16;
    }
    if (family.starts_with("qwen3_vl")) vision["deepstack_visual_indexes"] = {0, 1};
    if (family.starts_with("qwen3_5")) {  // a recurrence in two of three layers
      text["head_dim"] = 32;
      text["layer_types"] = {"linear_attention", "full_attention", "linear_attention"};
      text["linear_num_key_heads"] = 2;
      text["linear_num_value_heads"] = 4;
      text["linear_key_head_dim"] = text["linear_value_head_dim"] = 8;
    }
    if (family.ends_with("_moe")) {
      text["num_experts"] = 4;
      text["num_experts_per_tok"] = 2;
      text["moe_intermediate_size"] = text["shared_expert_intermediate_size"] = 20;
    }
    if (family == "qwen2_5_vl") {
      vision["window_size"] = 28;
      vision["fullatt_block_indexes"] = {2};
      vision["hidden_act"] = "silu";
    }
  }
  return json;
}

at::Tensor row_of(const std::vector<std::vector<int64_t>>& parts) {
  std::vector<int64_t> all;
  for (const std::vector<int64_t>& part : parts) all.insert(all.end(), part.begin(), part.end());
  return at::tensor(all, at::kLong).unsqueeze(0);
}

/// Of a few positions; `scaled`: the family's images have their own size.
family::ImagePlan small_image(const family::ModelConfig& config, bool scaled) {
  const Json nothing = Json::object();
  std::vector<std::string> notices;
  family::ImageRules rules{.fit = config.family->defaults(config, nothing).image_fit};
  if (scaled) rules.min_pixels = 1, rules.max_pixels = 2000;
  return config.family
      ->image_processor(config, {.json = nothing, .where = "", .folder = ""}, rules, &notices)
      ->plan({.width = 56, .height = 28});
}

/// Two pairs about an image each, the first with a longer rejected answer.
struct Pairs {
  family::Batch separate, shared;
};

Pairs make_pairs(const family::ModelConfig& config, bool scaled) {
  const family::ImagePlan image = small_image(config, scaled);
  std::vector<int64_t> prompt = {3, 5};
  prompt.insert(prompt.end(), static_cast<size_t>(image.positions()), kImageToken);
  prompt.insert(prompt.end(), {7, 8});
  const std::vector<std::vector<int64_t>> answers = {{11, 12}, {13, 14, 15}, {16}, {11, 12, 17}};
  std::vector<std::vector<int64_t>> ids, labels, ids_once, labels_once;
  auto apart = std::make_shared<ops::PackedSequences>(),
       once = std::make_shared<ops::PackedSequences>();
  apart->starts = once->starts = {0};
  const auto common = static_cast<int64_t>(prompt.size()) - 1;
  for (size_t i = 0; i < answers.size(); ++i) {
    const std::vector<int64_t>& answer = answers[i];
    const int64_t shared = i % 2 == 1 ? common : 0;
    const auto own = static_cast<size_t>(std::ssize(prompt) - shared);
    ids.insert(ids.end(), {prompt, answer});
    labels.insert(labels.end(), {std::vector<int64_t>(prompt.size(), -100), answer});
    ids_once.insert(ids_once.end(), {{prompt.begin() + shared, prompt.end()}, answer});
    labels_once.insert(labels_once.end(), {std::vector<int64_t>(own, -100), answer});
    apart->starts.push_back(apart->starts.back() + std::ssize(prompt) + std::ssize(answer));
    once->starts.push_back(once->starts.back() + static_cast<int64_t>(own) + std::ssize(answer));
    once->shared.push_back(shared);
  }
  const at::Tensor pixels =
      at::randn({2 * image.shape.tiles, 3, image.shape.height, image.shape.width});
  const auto batch = [&](const auto& ids_of, const auto& labels_of, const auto& packed) {
    family::Batch made;
    made.input_ids_bt = row_of(ids_of);
    made.labels_bt = row_of(labels_of);
    made.lengths_b = at::tensor({packed->starts.back()}, at::kLong);
    made.packed = packed;
    made.pixels = pixels;
    made.images = {image.shape, image.shape};
    return made;
  };
  Pairs pairs{batch(ids, labels, apart), batch(ids_once, labels_once, once)};
  pairs.separate.shown = {0, 0, 1, 1};
  return pairs;
}

struct Pass {
  at::Tensor logprobs;
  std::vector<at::Tensor> gradients;
};

Pass run(family::Model& model, const std::vector<lora::Trainable>& trainables,
         const family::Batch& batch, int64_t recompute_every) {
  Pass pass;
  for (const lora::Trainable& trainable : trainables) trainable.tensor.mutable_grad().reset();
  {
    const layers::RecomputeGuard recompute(recompute_every, /*offload=*/false);
    pass.logprobs = model->supervised_logprobs(batch);
  }
  const at::Tensor weights = at::arange(1, pass.logprobs.numel() + 1).to(at::kFloat);
  (pass.logprobs * weights).sum().backward();
  for (const lora::Trainable& trainable : trainables)
    pass.gradients.push_back(trainable.tensor.grad().defined()
                                 ? trainable.tensor.grad().clone()
                                 : at::zeros_like(trainable.tensor));  // a block that does not run
  return pass;
}

class SharedPrompt : public ::testing::TestWithParam<const char*> {};

TEST_P(SharedPrompt, LogprobsAndGradientsAreThoseOfSeparateSequences) {
  at::manual_seed(5);
  const family::ModelConfig config = registry::parse_config(config_of(GetParam()), "config.json");
  family::Model model =
      config.family->build(config, at::kFloat, at::kCPU, ops::BaseStorage::kDense);
  std::vector<std::string> targets = {"llm:all-linear"};
  if (config.text.experts.count > 0) targets.emplace_back("llm:experts.down_proj");
  lora::inject_lora(lora::select_sites(lora::linear_sites(*model), targets),
                    {.rank = 4, .alpha = 8, .dropout = 0}, 3);
  {
    const at::NoGradGuard no_grad;
    for (auto& item : model->named_parameters()) {
      const bool norm = item.key().find("norm") != std::string::npos;
      item.value().normal_(norm ? 1 : 0, 0.2);
    }
  }
  const std::vector<lora::Trainable> trainables =
      lora::make_trainable(*model, {"projector", "vision"});
  const Pairs pairs = make_pairs(config, std::string(GetParam()).starts_with("qwen"));
  const Pass separate = run(model, trainables, pairs.separate, 0);
  ASSERT_EQ(separate.logprobs.numel(), 9);
  double largest = 0;
  for (const at::Tensor& gradient : separate.gradients)
    largest = std::max(largest, gradient.abs().max().item<double>());
  for (const int64_t every : {0, 1}) {
    const Pass shared = run(model, trainables, pairs.shared, every);
    // Both run the same float32 sums over other tile shapes: 1e-5 of the largest value is a hundred
    // units in the last place.
    EXPECT_LT((shared.logprobs - separate.logprobs).abs().max().item<double>(), 1e-5);
    for (size_t i = 0; i < trainables.size(); ++i) {
      const double size = separate.gradients[i].abs().max().item<double>();
      // Some gradients are sums that cancel: a bias of keys has none.
      EXPECT_LE((shared.gradients[i] - separate.gradients[i]).abs().max().item<double>(),
                2e-5 * size + 1e-6 * largest)
          << trainables[i].name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, SharedPrompt,
                         ::testing::Values("llava", "gemma3", "qwen2_5_vl", "qwen3_vl", "qwen3_5",
                                           "qwen3_vl_moe", "qwen3_5_moe"),
                         [](const auto& info) { return std::string(info.param); });

/// In double precision, with a mask of each whole sequence and without, against sequences that
/// repeat the shared positions.
TEST(SharedAttention, IsThatOfWholeSequences) {
  at::manual_seed(6);
  ops::PackedSequences shared, whole;
  shared.starts = {0, 5, 8, 10, 17};
  shared.shared = {0, 4, 0, 2};
  whole.starts = shared.whole_starts();
  EXPECT_EQ(whole.starts, (std::vector<int64_t>{0, 5, 12, 14, 23}));
  EXPECT_EQ(shared.longest(), 9);
  EXPECT_TRUE(at::equal(shared.positions().narrow(0, 5, 3), at::arange(4, 7)));
  for (const bool masked : {false, true}) {
    std::vector<at::Tensor> masks;
    for (const int64_t length : {5, 7, 2, 9})
      if (masked)
        masks.push_back(at::ones({length, length}, at::kBool)
                            .tril()
                            .logical_and(at::rand({length, length}) < 0.7)
                            .logical_or(at::eye(length, at::kBool)));
    std::vector<at::Tensor> ours, theirs;
    for (const int64_t heads : {4, 2, 2}) {
      const at::Tensor x = at::randn({17, heads, 8}, at::kDouble);
      ours.push_back(x.clone().requires_grad_(true));
      theirs.push_back(x.clone().requires_grad_(true));
    }
    const at::Tensor got = ops::packed_attention(ours[0], ours[1], ours[2], shared, true, masks);
    std::vector<at::Tensor> repeated;
    for (const at::Tensor& x : theirs)
      repeated.push_back(at::cat({x.narrow(0, 0, 5), x.narrow(0, 0, 4), x.narrow(0, 5, 3),
                                  x.narrow(0, 8, 2), x.narrow(0, 8, 2), x.narrow(0, 10, 7)}));
    const at::Tensor all =
        ops::packed_attention(repeated[0], repeated[1], repeated[2], whole, true, masks);
    const at::Tensor want = at::cat(
        {all.narrow(0, 0, 5), all.narrow(0, 9, 3), all.narrow(0, 12, 2), all.narrow(0, 16, 7)});
    EXPECT_LT((got - want).abs().max().item<double>(), 1e-14);
    const at::Tensor weights = at::randn({17, 4, 8}, at::kDouble);
    got.backward(weights);
    want.backward(weights);
    for (size_t i = 0; i < 3; ++i)
      EXPECT_LT((ours[i].grad() - theirs[i].grad()).abs().max().item<double>(), 1e-13) << i;
  }
}

}  // namespace
}  // namespace lft::test::shared_prompt_test
