// The joined model: names, padding, row pruning, the cache, full training, low precision, and
// errors of bad batches.
#include <ATen/core/grad_mode.h>

#include <map>
#include <set>

#include "models/base/call.h"
#include "models/lora/inject.h"
#include "models/lora/inject_select.h"
#include "models/loss_sum.h"
#include "models/ops/core/precision.h"
#include "models/tiny.h"

namespace lft::test::llava_test {
namespace {

/// The supervised log-probabilities from logits of every position, by plain ops.
at::Tensor from_all_logits(const at::Tensor& logits_btv, const at::Tensor& labels_bt) {
  const int64_t t = labels_bt.size(1);
  const at::Tensor next = labels_bt.narrow(1, 1, t - 1),
                   logs = at::log_softmax(logits_btv.narrow(1, 0, t - 1), -1);
  return logs.gather(2, next.clamp_min(0).unsqueeze(2)).squeeze(2).masked_select(next != -100);
}

std::map<std::string, at::Tensor> gradients_of(Model& model) {
  std::map<std::string, at::Tensor> result;
  for (auto& item : model->named_parameters()) {
    if (item.value().grad().defined()) result[item.key()] = item.value().grad().clone();
    item.value().mutable_grad() = at::Tensor();
  }
  return result;
}

void expect_same_gradients(const std::map<std::string, at::Tensor>& got,
                           const std::map<std::string, at::Tensor>& want) {
  double largest = 0;
  for (const auto& [name, gradient] : want)
    largest = std::max(largest, gradient.norm().item<double>());
  for (const auto& [name, gradient] : want) {
    if (got.count(name) == 0) {  // plain ops give a zero gradient where ours gives none
      EXPECT_EQ(gradient.norm().item<double>(), 0) << name;
      continue;
    }
    EXPECT_LT((got.at(name) - gradient).norm().item<double>(),
              1e-5 * largest + 1e-4 * gradient.norm().item<double>())
        << name;
  }
  for (const auto& [name, gradient] : got) EXPECT_EQ(want.count(name), 1u) << name;
}

std::vector<family::ModelConfig> configs() {
  std::vector<family::ModelConfig> result = {tiny_config()};
  Json json = tiny_json();
  json["text_config"].update({{"tie_word_embeddings", true},
                              {"attention_bias", true},
                              {"mlp_bias", true},
                              {"head_dim", 6}});
  json.update({{"vision_feature_layer", {0, -1}},
               {"vision_feature_select_strategy", "full"},
               {"multimodal_projector_bias", false}});
  result.push_back(llava::parse_llava(json, "tiny"));
  return result;
}

TEST(Llava, ParametersAreTheListedTensors) {
  for (const family::ModelConfig& config : configs()) {
    std::map<std::string, std::vector<int64_t>> listed, held;
    for (const TensorSpec& spec : tensors_of(config))
      EXPECT_TRUE(listed.emplace(spec.name, spec.shape).second) << spec.name;
    for (const auto& item : build_model(config, at::kBFloat16)->named_parameters()) {
      held[item.key()] = item.value().sizes().vec();
      EXPECT_EQ(item.value().scalar_type(), at::kBFloat16);
      EXPECT_FALSE(item.value().requires_grad());
    }
    EXPECT_EQ(listed, held);
  }
}

TEST(Llava, NamesInEveryDialect) {
  const family::ModelConfig config = tiny_config();
  const std::string vision = "vision_tower.vision_model.encoder.layers.1.mlp.fc1.weight",
                    llm = "language_model.model.layers.0.mlp.up_proj.weight";
  const std::pair<std::string, std::string> pairs[] = {
      {llm, llm},
      {"model.language_model.layers.0.mlp.up_proj.weight", llm},
      {vision, vision},
      {"vision_tower.encoder.layers.1.mlp.fc1.weight", vision},
      {"model.vision_tower.encoder.layers.1.mlp.fc1.weight", vision},
      {"model.vision_tower.vision_model.encoder.layers.1.mlp.fc1.weight", vision},
      {"vision_tower.pre_layrnorm.bias", "vision_tower.vision_model.pre_layrnorm.bias"},
      {"model.multi_modal_projector.linear_1.bias", "multi_modal_projector.linear_1.bias"},
      {"lm_head.weight", "language_model.lm_head.weight"},
      {"language_model.lm_head.weight", "language_model.lm_head.weight"},
      {"vision_tower.vision_model.embeddings.position_ids", ""},
      {"language_model.model.layers.0.self_attn.rotary_emb.inv_freq", ""},
      {"image_newline", "image_newline"},
  };
  for (const auto& [from, to] : pairs)
    EXPECT_EQ(config.family->names.canonical_name(from, config), to);
  family::ModelConfig tied = config;
  tied.text.tie_embeddings = true;
  EXPECT_EQ(tied.family->names.canonical_name("lm_head.weight", tied), "");

  const std::string canonical = "vision_tower.vision_model.encoder.layers.1.mlp.fc1",
                    d2 = "model." + canonical;
  EXPECT_EQ(llava_family().names.peft_name("language_model.model.layers.0.mlp.up_proj"),
            "model.language_model.layers.0.mlp.up_proj");
  EXPECT_EQ(llava_family().names.peft_name("language_model.lm_head"), "lm_head");
  EXPECT_EQ(llava_family().names.peft_name(canonical), d2);
  for (const std::string& dialect :
       {canonical, d2, std::string("model.vision_tower.encoder.layers.1.mlp.fc1")})
    EXPECT_EQ(llava_family().names.from_peft_name(dialect), canonical);
  for (const char* stranger : {"", "model", "model.lm_head", "model.layers.0.self_attn.q_proj",
                               "vision_tower.heads", "language_modelx.model", "transformer.h.0"}) {
    EXPECT_EQ(llava_family().names.from_peft_name(stranger), "") << stranger;
  }
  for (const TensorSpec& spec : tensors_of(config))
    EXPECT_EQ(llava_family().names.from_peft_name(llava_family().names.peft_name(spec.name)),
              spec.name);
}

TEST(Llava, UnusedModulesGetNoGradient) {
  for (const family::ModelConfig& config : configs()) {
    Model model = make_llava(config);
    make_trainable(*model, {"all"});
    test::loss_sum(model, tiny_batch(config)).backward();
    const std::vector<std::string> unused = config.family->layout(config).unused_modules;
    for (const auto& item : model->named_parameters()) {
      bool dead = false;
      for (const std::string& module : unused) dead = dead || item.key().starts_with(module + ".");
      EXPECT_EQ(item.value().grad().defined(), !dead) << item.key();
    }
  }
}

TEST(Llava, PrunedRowsAndFusedLossGiveThePlainGradients) {
  for (const family::ModelConfig& config : configs()) {
    for (const char* scope : {"all", "llm", "projector", "vision"}) {
      Model model = make_llava(config);
      make_trainable(*model, {scope});
      const family::Batch batch = tiny_batch(config);
      const at::Tensor pruned = model->supervised_logprobs(batch);
      (-pruned.sum()).backward();
      const auto got = gradients_of(model);
      const at::Tensor plain = from_all_logits(model->all_logits(batch), batch.labels_bt);
      EXPECT_LT(max_abs_diff(pruned.detach(), plain.detach()), 1e-5);
      (-plain.sum()).backward();
      expect_same_gradients(got, gradients_of(model));
    }
  }
}

TEST(Llava, PaddingNeverChangesAResult) {
  const at::NoGradGuard no_grad;
  const family::ModelConfig config = tiny_config();
  Model model = make_llava(config);
  const family::Batch batch = tiny_batch(config);
  const at::Tensor whole = model->supervised_logprobs(batch);
  family::Batch alone;  // the short text-only row, without its padding
  alone.input_ids_bt = batch.input_ids_bt.narrow(0, 1, 1).narrow(1, 0, 5);
  alone.labels_bt = batch.labels_bt.narrow(0, 1, 1).narrow(1, 0, 5);
  alone.lengths_b = batch.lengths_b.narrow(0, 1, 1);
  EXPECT_LT(max_abs_diff(model->supervised_logprobs(alone), whole.narrow(0, 3, 2)), 1e-6);
  family::Batch other = batch;  // the content of the padding does not matter
  other.input_ids_bt = batch.input_ids_bt.clone();
  other.input_ids_bt[1].narrow(0, 5, 4).fill_(17);
  EXPECT_TRUE(at::equal(model->supervised_logprobs(other), whole));
}

TEST(Llava, NoSupervisedTokenIsZeroWithoutGraph) {
  const family::ModelConfig config = tiny_config();
  Model model = make_llava(config);
  make_trainable(*model, {"all"});
  family::Batch batch = tiny_batch(config);
  batch.labels_bt.fill_(-100);
  batch.labels_bt.select(1, 0).fill_(1);  // nothing before a first token could predict it
  const at::Tensor loss = test::loss_sum(model, batch);
  EXPECT_EQ(loss.item<float>(), 0);
  EXPECT_FALSE(loss.requires_grad());
  EXPECT_EQ(model->supervised_logprobs(batch).numel(), 0);
}

TEST(Llava, BadBatchesAreInputErrors) {
  const at::NoGradGuard no_grad;
  const family::ModelConfig config = tiny_config();
  Model model = make_llava(config);
  const auto with = [&](const auto& change) {
    family::Batch batch = tiny_batch(config);
    change(batch);
    return error_of([&] { model->supervised_logprobs(batch); }, ErrorKind::kInput);
  };
  EXPECT_NE(
      with([](family::Batch& b) { b.pixels = b.pixels.narrow(0, 0, 2); }).found.find("2 images"),
      std::string::npos);
  with([](family::Batch& b) { b.pixels = at::Tensor(); });
  EXPECT_EQ(with([](family::Batch& b) { b.pixels = b.pixels.narrow(3, 0, 12); }).found,
            "[3, 3, 18, 12]");
  with([](family::Batch& b) { b.input_ids_bt[0][3] = 5; });
  EXPECT_EQ(with([](family::Batch& b) { b.input_ids_bt[0][1] = 64; }).found, "64");
  with([](family::Batch& b) { b.input_ids_bt[0][1] = -1; });
  EXPECT_EQ(with([](family::Batch& b) { b.labels_bt[0][5] = 64; }).found, "64");
  with([](family::Batch& b) { b.labels_bt[0][5] = -7; });
}

TEST(Llava, CacheStepsEqualTheWholePass) {
  const at::NoGradGuard no_grad;
  for (const family::ModelConfig& config : configs()) {
    Model model = make_llava(config);
    const family::Batch prompt = tiny_batch(config);
    KvCache cache;
    at::Tensor logits = model->next_logits(prompt, cache);
    std::vector<std::vector<int64_t>> rows(3);
    for (size_t r = 0; r < 3; ++r) {
      for (int64_t i = 0; i < prompt.lengths_b[static_cast<int64_t>(r)].item<int64_t>(); ++i) {
        rows[r].push_back(prompt.input_ids_bt[static_cast<int64_t>(r)][i].item<int64_t>());
      }
    }
    for (int step = 0; step < 250;
         ++step) {  // past the cache's first 256 positions, so that it grows
      family::Batch next;
      next.input_ids_bt = at::zeros({3, 1}, at::kLong);
      for (int64_t r = 0; r < 3; ++r) {
        const int64_t id = (step * 7 + r * 11) % 50;
        next.input_ids_bt[r][0] = id;
        rows[static_cast<size_t>(r)].push_back(id);
      }
      logits = model->next_logits(next, cache);
    }
    int64_t first_image = 0;
    for (int64_t r = 0; r < 3; ++r) {
      const int64_t images = r == 0 ? 1 : r == 1 ? 0 : 2;
      family::Batch whole;
      whole.input_ids_bt = at::tensor(rows[static_cast<size_t>(r)], at::kLong).unsqueeze(0);
      if (images > 0) whole.pixels = prompt.pixels.narrow(0, first_image, images);
      first_image += images;
      const at::Tensor all = model->all_logits(whole);
      EXPECT_LT(max_abs_diff(logits[r], all[0][all.size(1) - 1]), 2e-4) << "row " << r;
    }
    family::Batch two = prompt;
    error_of([&] { model->next_logits(two, cache); }, ErrorKind::kInternal);
  }
}

TEST(Llava, LowPrecisionIsNearAndWideningIsExact) {
  const at::NoGradGuard no_grad;
  const family::ModelConfig config = tiny_config();
  const family::Batch batch = tiny_batch(config);
  Model wide = make_llava(config);
  const at::Tensor exact = wide->supervised_logprobs(batch);
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    for (const at::ScalarType stored : {at::kFloat, type}) {
      Model model = make_llava(config, stored);
      const ComputeDtypeGuard guard(type);
      const at::Tensor got = model->supervised_logprobs(batch);
      EXPECT_EQ(got.scalar_type(), at::kFloat);
      EXPECT_LT(max_abs_diff(got, exact),
                type == at::kHalf ? 0.05 : 0.4);  // a few hundred roundings of 2^-11, of 2^-8
    }
  }
  // Stored in BFloat16, computed in float32: exactly the float32 model of the rounded weights.
  Model half = make_llava(config, at::kBFloat16);
  for (auto& item : wide->named_parameters()) item.value().copy_(item.value().to(at::kBFloat16));
  EXPECT_LT(max_abs_diff(half->supervised_logprobs(batch), wide->supervised_logprobs(batch)), 1e-6);
}

class Recorder : public CallObserver {
 public:
  void before(const std::string& path, const torch::nn::Module&,
              const std::vector<at::Tensor>& inputs) override {
    entered.emplace(path, inputs.size());
  }
  void after(const std::string& path, const torch::nn::Module&,
             const std::vector<at::Tensor>& outputs) override {
    left.emplace(path, outputs.size());
  }
  std::map<std::string, size_t> entered, left;
};

TEST(Llava, EveryUsedModuleIsCalledUnderItsOwnName) {
  const at::NoGradGuard no_grad;
  const family::ModelConfig config = tiny_config();
  Model model = make_llava(config);
  Recorder recorder;
  {
    const ObserveCalls observe(recorder);
    model->supervised_logprobs(tiny_batch(config));
  }
  model->supervised_logprobs(tiny_batch(config));
  EXPECT_EQ(recorder.entered.size(), recorder.left.size());
  std::set<std::string> modules;
  for (const auto& item : model->named_modules("", /*include_self=*/false))
    modules.insert(item.key());
  for (const auto& [path, count] : recorder.entered) {
    EXPECT_EQ(modules.count(path), 1u) << path;
    EXPECT_GE(count, 1u) << path;
  }
  for (const LinearSite& site : linear_sites(*model)) {
    const bool unused = site.name.find("vision_model.encoder.layers.2") != std::string::npos ||
                        site.name == "language_model.lm_head";
    EXPECT_EQ(recorder.entered.count(site.name), unused ? 0u : 1u) << site.name;
  }
  EXPECT_EQ(recorder.entered.at("language_model.model.layers.1.mlp.down_proj"), 2u)
      << "gate and up";
  EXPECT_EQ(current_module_path(), "");
}

TEST(Llava, AnErrorUnwindsThePath) {
  Model model = make_llava(tiny_config());
  EXPECT_ANY_THROW(call("language_model", model->language_model, at::zeros({1, 2, 7}), at::Tensor(),
                        at::Tensor(), static_cast<KvCache*>(nullptr)));
  EXPECT_EQ(current_module_path(), "");
}

}  // namespace
}  // namespace lft::test::llava_test
