// Ranks and alphas by pattern: which layers get other values, and that the layers have them.
#include <ATen/ATen.h>

#include "models/lora/inject_select.h"
#include "models/lora/lora.h"
#include "models/lora/registry.h"
#include "models/tiny.h"

namespace lft::test {
namespace {

class Patterns : public ::testing::Test {
 protected:
  LoraOptions own(const OwnPatterns& patterns) const {
    return with_own({.rank = 4, .alpha = 8}, sites_, patterns);
  }
  family::ModelConfig config_ = tiny_config();
  Model model_ = make_llava(config_);
  std::vector<LinearSite> sites_ =
      select_sites(linear_sites(*model_), {"llm:all-linear", "vision:all-linear"});
  const std::string layer_ = "language_model.model.layers.0.";
};

TEST_F(Patterns, TheFirstThatMatchesCounts) {
  const LoraOptions options = own(
      {.rank = {{"layers.0.self_attn.q_proj", 3}, {"q_proj", 2}}, .alpha = {{"llm:*.mlp.*", 5}}});
  EXPECT_EQ(options.of(layer_ + "self_attn.q_proj").rank, 3);
  EXPECT_EQ(options.of("language_model.model.layers.1.self_attn.q_proj").rank, 2);
  EXPECT_EQ(options.of("vision_tower.vision_model.encoder.layers.1.self_attn.q_proj").rank, 2);
  EXPECT_EQ(options.of(layer_ + "mlp.up_proj").alpha, 5);
  EXPECT_EQ(options.of(layer_ + "mlp.up_proj").rank, 4);
  EXPECT_EQ(options.of("vision_tower.vision_model.encoder.layers.1.mlp.fc1").alpha, 8);
  EXPECT_FALSE(options.own.contains(layer_ + "self_attn.v_proj"));
  EXPECT_TRUE(own({.rank = {{"q_proj", 4}}, .alpha = {{"q_proj", 8}}}).own.empty());
}

TEST_F(Patterns, AnAdapterHasItsLayersRankAndScale) {
  LoraOptions options = own({.rank = {{"q_proj", 2}}, .alpha = {{"q_proj", 6}}});
  inject_lora(sites_, options, 1);
  for (const LinearSite& site : sites_) {
    const auto adapter = std::dynamic_pointer_cast<LoraAdapter>(site.layer->adapter());
    const bool other = site.name.ends_with("q_proj");
    EXPECT_EQ(adapter->a_ri.size(0), other ? 2 : 4) << site.name;
    EXPECT_EQ(adapter->scale(), other ? 3 : 2) << site.name;
  }
  options.variant = "pissa";
  const LoraOptions saved = saved_options(options);
  EXPECT_EQ(saved.of(layer_ + "self_attn.q_proj").rank, 4);
  EXPECT_EQ(saved.of(layer_ + "self_attn.q_proj").alpha, 12);
  EXPECT_EQ(saved.rank, 8);
}

TEST_F(Patterns, OneThatMatchesNothingIsRefusedWithTheClosest) {
  const auto refused = [&](const OwnPatterns& patterns) {
    try {
      own(patterns);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      return error.info().where + ": " + error.info().expected;
    }
    return std::string("nothing");
  };
  EXPECT_NE(refused({.rank = {{"qq_proj", 2}}, .alpha = {}}).find("the closest: q_proj"),
            std::string::npos);
  EXPECT_TRUE(
      refused({.rank = {}, .alpha = {{"vision:up_proj", 2}}}).starts_with("lora.alpha_pattern"));
  EXPECT_TRUE(refused({.rank = {{"linear_1", 2}}, .alpha = {}}).starts_with("lora.rank_pattern"));
}

}  // namespace
}  // namespace lft::test
