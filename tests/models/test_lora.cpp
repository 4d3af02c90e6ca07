// Selecting layers by pattern, injecting adapters, trainability, and merging.
#include "models/lora/inject.h"
#include "models/lora/inject_select.h"
#include "models/lora/lora.h"
#include "models/loss_sum.h"
#include "models/ops/core/precision.h"
#include "models/tiny.h"

namespace lft::test::lora_test {
namespace {

std::vector<std::string> names_of(const std::vector<LinearSite>& sites) {
  std::vector<std::string> names;
  for (const LinearSite& site : sites) names.push_back(site.name);
  return names;
}

class Lora : public ::testing::Test {
 protected:
  std::vector<LinearSite> select(const std::vector<std::string>& targets) {
    return select_sites(linear_sites(*model_), targets);
  }
  at::Tensor parameter(const std::string& name) { return *model_->named_parameters().find(name); }
  family::ModelConfig config_ = tiny_config();
  Model model_ = make_llava(config_);
};

TEST_F(Lora, SitesHaveScopesAndCanonicalNames) {
  size_t llm = 0, projector = 0, vision = 0;
  for (const LinearSite& site : linear_sites(*model_)) {
    llm += site.scope == "llm";
    projector += site.scope == "projector";
    vision += site.scope == "vision";
    EXPECT_TRUE(parameter(site.name + ".weight").is_same(site.layer->weight)) << site.name;
  }
  EXPECT_EQ(llm, 2u * 7 + 1);
  EXPECT_EQ(projector, 2u);
  EXPECT_EQ(vision, 3u * 6);
}

TEST_F(Lora, Patterns) {
  EXPECT_EQ(select({"llm:all-linear"}).size(), 14u) << "all but the LM head";
  EXPECT_EQ(names_of(select({"llm:lm_head"})), std::vector<std::string>{"language_model.lm_head"});
  EXPECT_EQ(select({"llm:q_proj"}).size(), 2u) << "not CLIP's";
  EXPECT_EQ(select({"vision:q_proj"}).size(), 3u);
  EXPECT_EQ(names_of(select({"llm:1.mlp.down_proj"})),
            std::vector<std::string>{"language_model.model.layers.1.mlp.down_proj"});
  EXPECT_EQ(names_of(select({"projector:multi_modal_projector.linear_2"})),
            std::vector<std::string>{"multi_modal_projector.linear_2"});
  EXPECT_EQ(select({"llm:*layers.0.*_proj"}).size(), 7u);
  EXPECT_EQ(select({"vision:*.mlp.*"}).size(), 6u);
  EXPECT_EQ(select({"llm:k_proj", "llm:q_proj", "llm:*0.self_attn.q_proj"}).size(), 4u)
      << "each once";
  EXPECT_EQ(names_of(select({"llm:k_proj", "llm:q_proj"})),
            names_of(select({"llm:q_proj", "llm:k_proj"})))
      << "in module order";
}

TEST_F(Lora, NoMatchNamesTheClosestAndTheOtherTower) {
  const ErrorInfo typo = error_of([&] { select({"llm:q_porj"}); }, ErrorKind::kUsage);
  EXPECT_NE(typo.expected.find("q_proj"), std::string::npos) << typo.expected;
  const ErrorInfo leak = error_of([&] { select({"llm:fc1"}); }, ErrorKind::kUsage);
  EXPECT_NE(leak.next.find("vision (3 layers)"), std::string::npos) << leak.next;
  EXPECT_EQ(leak.found, "llm:fc1");
}

TEST_F(Lora, UnknownScopesAndBareNames) {
  for (const char* target : {"language:q_proj", "q_proj", "llm:", ":q_proj", "", "LLM:q_proj"}) {
    EXPECT_NE(error_of([&] { select({target}); }, ErrorKind::kUsage).expected.find("projector"),
              std::string::npos)
        << target;
  }
}

TEST_F(Lora, HostilePatternsEndSoon) {
  std::string stars;
  for (int i = 0; i < 5000; ++i) stars += "*a";
  error_of([&] { select({"llm:" + stars}); }, ErrorKind::kUsage);
}

TEST_F(Lora, RankIsChecked) {
  for (const int64_t rank : {0, -1, 33}) {  // the layers have at most 32 inputs and outputs
    const ErrorInfo info =
        error_of([&] { inject_lora(select({"projector:all-linear"}), {.rank = rank}, 1); },
                 ErrorKind::kUsage);
    EXPECT_NE(info.where.find("lora.rank"), std::string::npos);
  }
  EXPECT_EQ(linear_sites(*model_)[0].layer->adapter(), nullptr)
      << "nothing is injected when one does not fit";
  error_of([&] { inject_lora(select({"llm:q_proj"}), {.variant = "vera", .rank = 2}, 1); },
           ErrorKind::kUsage);
}

/// As in PEFT: one that is larger than the smaller side changes the layer like any other.
TEST_F(Lora, TheRankMayBeTheLargerSide) {
  Linear layer(12, 5, false, at::TensorOptions(at::kFloat));
  const at::NoGradGuard no_grad;
  layer->weight.copy_(fill_by_hash("weight", {5, 12}));
  inject_lora({{"layer", "llm", layer}}, {.rank = 12, .alpha = 24}, 1);
  at::Tensor a, b;
  for (auto& item : layer->adapter()->named_parameters()) {
    (item.key() == "lora_A" ? a : b) = item.value();
    item.value().copy_(fill_by_hash(item.key(), item.value().sizes()));
  }
  EXPECT_EQ(a.sizes(), (std::vector<int64_t>{12, 12}));
  EXPECT_EQ(b.sizes(), (std::vector<int64_t>{5, 12}));
  const at::Tensor x = fill_by_hash("x", {3, 12});
  const at::Tensor want = x.matmul(layer->weight.t()) + 2 * x.matmul(a.t()).matmul(b.t());
  EXPECT_LT((layer->forward(x) - want).abs().max().item<double>(), 1e-5);
  Linear other(12, 5, false, at::TensorOptions(at::kFloat));
  EXPECT_EQ(error_of(
                [&] {
                  inject_lora({{"layer", "llm", other}}, {.rank = 13}, 1);
                },
                ErrorKind::kUsage)
                .expected,
            "1 to 12 (the larger side of the layer's weight)");
}

TEST_F(Lora, CopiesThatAreKeptChangeNoBitAndLieBesideEachOther) {
  const at::NoGradGuard no_grad;
  const family::Batch batch = tiny_batch(config_);
  inject_lora(select({"llm:all-linear"}), {.rank = 4, .alpha = 12}, 5);
  std::vector<LinearSite> sites = select({"llm:all-linear"});
  for (LinearSite& site : sites)
    site.layer->adapter()->named_parameters()["lora_B"].copy_(
        fill_by_hash(site.name, {site.layer->weight.size(0), 4}));
  keep_shadows(*model_, at::kFloat);
  EXPECT_FALSE(sites[0].layer->adapter()->shadows()[0]->kept(at::kFloat).defined());
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const ops::ComputeDtypeGuard guard(dtype);
    for (const LinearSite& site : sites) {
      for (const ops::ShadowPtr& shadow : site.layer->adapter()->shadows()) shadow->keep({});
    }
    const at::Tensor before = model_->supervised_logprobs(batch);
    keep_shadows(*model_, dtype);
    EXPECT_TRUE(at::equal(model_->supervised_logprobs(batch), before));
    std::vector<at::Tensor> of_a;
    for (const LinearSite& site : sites) {
      if (site.name.find("layers.0.self_attn") == std::string::npos) continue;
      of_a.push_back(site.layer->adapter()->shadows()[0]->kept(dtype));
    }
    ASSERT_EQ(of_a.size(), 4u);
    of_a.pop_back();  // o_proj has another input
    EXPECT_TRUE(ops::stacked_view(of_a).defined());
  }
}

TEST_F(Lora, AFreshAdapterChangesNothingAndIsDrawnByNameAndSeed) {
  const at::NoGradGuard no_grad;
  const family::Batch batch = tiny_batch(config_);
  const at::Tensor before = model_->supervised_logprobs(batch);
  const std::string name = "language_model.model.layers.1.self_attn.q_proj.adapter.lora_A";
  inject_lora(select({"llm:all-linear"}), {.rank = 4}, 5);
  EXPECT_TRUE(at::equal(model_->supervised_logprobs(batch), before));
  const at::Tensor a = parameter(name).clone();
  EXPECT_EQ(a.scalar_type(), at::kFloat);
  EXPECT_LE(a.abs().max().item<float>(), 1 / std::sqrt(32.0f));
  // Uniform in +-1 / sqrt(in) has this standard deviation; 128 draws estimate it to about 5 %.
  EXPECT_NEAR(a.std().item<float>(), 1 / std::sqrt(3.0f * 32.0f), 0.02);
  inject_lora(select({"llm:q_proj"}), {.rank = 4}, 5);
  EXPECT_TRUE(at::equal(parameter(name), a)) << "whatever else is injected";
  inject_lora(select({"llm:q_proj"}), {.rank = 4}, 6);
  EXPECT_FALSE(at::equal(parameter(name), a));
  EXPECT_FALSE(at::equal(parameter("language_model.model.layers.0.self_attn.q_proj.adapter.lora_A"),
                         parameter(name)));
}

TEST_F(Lora, Scales) {
  EXPECT_EQ(lora_scale({.variant = "lora", .rank = 16, .alpha = 32}), 2);
  EXPECT_EQ(lora_scale({.variant = "rslora", .rank = 16, .alpha = 32}), 8);
}

TEST_F(Lora, TrainablesAreMastersInModuleOrder) {
  Model half = make_llava(config_, at::kBFloat16);
  inject_lora(select_sites(linear_sites(*half), {"llm:q_proj"}), {.rank = 2}, 1);
  const std::vector<Trainable> trainables = make_trainable(*half, {"projector"});
  ASSERT_EQ(trainables.size(), 4u + 4);
  EXPECT_EQ(trainables[0].name, "multi_modal_projector.linear_1.weight");
  EXPECT_EQ(trainables[0].scope, "projector");
  EXPECT_EQ(trainables[4].name, "language_model.model.layers.0.self_attn.q_proj.lora_A.weight");
  for (const Trainable& trainable : trainables) {
    EXPECT_EQ(trainable.tensor.scalar_type(), at::kFloat);
    EXPECT_TRUE(trainable.tensor.requires_grad());
  }
  size_t trained = 0;
  for (const auto& item : half->named_parameters()) trained += item.value().requires_grad();
  EXPECT_EQ(trained, trainables.size()) << "the rest is frozen";
  EXPECT_EQ(half->language_model->lm_head->weight.scalar_type(), at::kBFloat16);
}

TEST_F(Lora, AllTrainsEverythingAndScopesAreChecked) {
  EXPECT_EQ(make_trainable(*model_, {"all"}).size(), tensors_of(config_).size());
  error_of([&] { make_trainable(*model_, {"head"}); }, ErrorKind::kUsage);
  inject_lora(select({"llm:q_proj"}), {.rank = 2}, 1);
  error_of([&] { make_trainable(*model_, {"llm"}); }, ErrorKind::kUsage);
}

TEST_F(Lora, MergedEqualsAdapted) {
  const at::NoGradGuard no_grad;
  const family::Batch batch = tiny_batch(config_);
  inject_lora(
      select({"llm:all-linear", "projector:all-linear", "vision:all-linear", "llm:lm_head"}),
      {.rank = 3, .alpha = 7}, 1);
  fill_adapters(model_);
  const at::Tensor adapted = model_->all_logits(batch);
  EXPECT_LT(
      max_abs_diff(
          model_->supervised_logprobs(batch).sum(),
          at::log_softmax(adapted, -1)
              .narrow(1, 0, adapted.size(1) - 1)
              .gather(2,
                      batch.labels_bt.narrow(1, 1, adapted.size(1) - 1).clamp_min(0).unsqueeze(2))
              .squeeze(2)
              .masked_select(batch.labels_bt.narrow(1, 1, adapted.size(1) - 1) != -100)
              .sum()),
      1e-4)
      << "an adapted LM head, too";
  merge_adapters(*model_);
  EXPECT_EQ(model_->named_parameters().size(), tensors_of(config_).size());
  EXPECT_LT(max_abs_diff(model_->all_logits(batch), adapted), 1e-4);
}

TEST_F(Lora, DropoutFollowsThePositionAlone) {
  inject_lora(select({"llm:all-linear"}), {.rank = 3, .alpha = 7, .dropout = 0.5}, 1);
  fill_adapters(model_);
  make_trainable(*model_, {});
  const family::Batch batch = tiny_batch(config_);
  const auto run = [&](DropoutPosition position) {
    const DropoutGuard guard(position);
    const at::Tensor loss = test::loss_sum(model_, batch);
    for (auto& item : model_->named_parameters()) item.value().mutable_grad() = at::Tensor();
    loss.backward();
    return std::make_pair(
        loss.detach(),
        parameter("language_model.model.layers.0.mlp.down_proj.adapter.lora_A").grad().clone());
  };
  const auto first = run({1, 1, 0}), again = run({1, 1, 0}), next = run({1, 2, 0});
  EXPECT_TRUE(at::equal(first.first, again.first) && at::equal(first.second, again.second));
  EXPECT_FALSE(at::equal(first.first, next.first));
}

}  // namespace
}  // namespace lft::test::lora_test
