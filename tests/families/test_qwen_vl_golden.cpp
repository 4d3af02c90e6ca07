// Qwen-VL against transformers, on the numbers of
// tests/goldens/models/qwen_vl.json (float32, tiny models, hashed weights), and against themselves:
// packed, recomputed, with a cache.
#include "families/tiny_qwen.h"
#include "models/layers/recompute.h"
#include "models/lora/inject.h"
#include "models/lora/inject_select.h"
#include "models/loss_sum.h"
#include "models/ops/core/precision.h"

namespace lft::test::qwen_vl_test {
namespace {

// Sums of a few hundred float32 products in another order, as in tests/models/test_golden.cpp.
constexpr double kTolerance = 1e-5;

class QwenVlGolden : public QwenVlCase {
 protected:
  family::Model model_ = make_qwen(config_);
  family::Batch batch_ = golden_batch(config_, entry_);
  // The norm after a gated delta rule amplifies rounding at positions that have read little.
  double loose_ = config_.text.recurrent.empty() ? 1 : 5;

  at::Tensor some(const at::Tensor& features) {  // same as the generator
    return features.flatten().slice(0, 0, std::nullopt, 7);
  }
};

TEST_P(QwenVlGolden, ImageFeaturesAreTransformers) {
  const at::NoGradGuard no_grad;
  const family::ImageFeatures found = model_->image_features(batch_);
  EXPECT_LT(max_difference(some(found.features_kd), tensor_of(entry_["features"])), 3 * kTolerance);
  ASSERT_EQ(found.deepstack_features_kd.size(), entry_["deep"].size());
  for (size_t i = 0; i < found.deepstack_features_kd.size(); ++i)
    EXPECT_LT(max_difference(some(found.deepstack_features_kd[i]), tensor_of(entry_["deep"][i])),
              3 * kTolerance);
}

TEST_P(QwenVlGolden, PositionsAreTransformers) {
  const at::NoGradGuard no_grad;
  const at::Tensor positions = model_->embed(batch_).positions_3bt;
  for (int64_t axis = 0; axis < 3; ++axis) {
    for (int64_t row = 0; row < 3; ++row) {
      const auto want = entry_["positions"][static_cast<size_t>(axis)][static_cast<size_t>(row)]
                            .get<std::vector<int64_t>>();
      EXPECT_TRUE(at::equal(positions[axis][row].narrow(0, 0, static_cast<int64_t>(want.size())),
                            at::tensor(want, at::kLong)))
          << axis << " " << row;
    }
  }
}

TEST_P(QwenVlGolden, LogprobsAndLogitsAreTransformers) {
  const at::NoGradGuard no_grad;
  EXPECT_LT(max_difference(model_->supervised_logprobs(batch_), tensor_of(entry_["logprobs"])),
            loose_ * kTolerance);
  llama::KvCache cache;
  EXPECT_LT(max_difference(model_->next_logits(batch_, cache).flatten(),
                           tensor_of(entry_["last_logits"])),
            3 * loose_ * kTolerance);
}

/// The last positions of each row are its answer: scores are the golden's, and the cache contains
/// only the prompt, so that any other answer can follow.
TEST_P(QwenVlGolden, OnePassScoresRowsAndBeginsTheirAnswers) {
  const at::NoGradGuard no_grad;
  if (!model_->is_causal()) GTEST_SKIP() << "the states of a recurrent layer cannot be shortened";
  std::vector<int64_t> prompts;
  for (int64_t row = 0; row < 3; ++row)
    prompts.push_back(batch_.lengths_b[row].item<int64_t>() - 1 - row);
  llama::KvCache cache;
  const family::ScoredRows rows = model_->score_and_begin(batch_, prompts, cache);
  EXPECT_LT(max_difference(rows.logprobs_k, tensor_of(entry_["logprobs"])), kTolerance);
  EXPECT_EQ(cache.lengths, prompts);
  family::Batch one, whole = batch_;
  one.input_ids_bt = at::tensor({7, 20, 31}, at::kLong).unsqueeze(1);
  const at::Tensor next = model_->next_logits(one, cache);
  whole.input_ids_bt = batch_.input_ids_bt.clone();
  for (int64_t row = 0; row < 3; ++row)
    whole.input_ids_bt[row][prompts[static_cast<size_t>(row)]] = one.input_ids_bt[row][0];
  const at::Tensor logits = model_->all_logits(whole);
  for (int64_t row = 0; row < 3; ++row) {
    const int64_t end = prompts[static_cast<size_t>(row)];
    EXPECT_LT(max_difference(rows.logits_bv[row], logits[row][end - 1]), 3 * kTolerance) << row;
    EXPECT_LT(max_difference(next[row], logits[row][end]), 3 * kTolerance) << row;
  }
}

TEST_P(QwenVlGolden, GradientsAreAutograds) {
  for (at::Tensor& parameter : model_->parameters()) parameter.set_requires_grad(true);
  test::loss_sum(model_, batch_).backward();
  size_t compared = 0;
  const Json &norms = entry_["gradient_norms"], &gradients = entry_["gradients"];
  double most = 0;
  for (const auto& item : norms.items()) most = std::max(most, item.value().get<double>());
  for (const auto& item : model_->named_parameters()) {
    ASSERT_TRUE(norms.contains(item.key())) << item.key();
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    const double want = norms[item.key()], got = item.value().grad().norm().item<double>();
    EXPECT_NEAR(got, want, 1e-4 * want + 1e-6 * most) << item.key();
    if (!gradients.contains(item.key())) continue;
    ++compared;
    const at::Tensor whole = tensor_of(gradients[item.key()]);
    const double off =
        (item.value().grad().flatten().to(at::kDouble) - whole).norm().item<double>();
    EXPECT_LT(off, 1e-4 * want + 1e-6 * most) << item.key();
  }
  EXPECT_EQ(compared, gradients.size());
  EXPECT_EQ(model_->named_parameters().size(), norms.size());
}

TEST_P(QwenVlGolden, LoraLogprobsAndGradientsArePefts) {
  std::vector<std::string> targets = {"llm:all-linear", "projector:all-linear",
                                      "vision:all-linear"};
  if (config_.text.experts.count > 0)
    targets.insert(targets.end(), {"llm:experts.gate_up_proj", "llm:experts.down_proj"});
  lora::inject_lora(lora::select_sites(lora::linear_sites(*model_), targets),
                    {.rank = 3, .alpha = 7}, 1);
  {
    const at::NoGradGuard no_grad;
    for (auto& item : model_->named_parameters()) {
      const std::string& name = item.key();
      const size_t infix = name.find(".adapter.");
      if (infix == std::string::npos) continue;
      item.value().copy_(hashed(name.substr(0, infix) + "." + name.substr(infix + 9) + ".weight",
                                item.value().sizes()));
    }
  }
  const std::vector<lora::Trainable> trainables = lora::make_trainable(*model_, {});
  // The adapters are many and large: their sums of products have twice as many terms.
  EXPECT_LT(max_difference(model_->supervised_logprobs(batch_), tensor_of(entry_["lora_logprobs"])),
            3 * loose_ * kTolerance);
  test::loss_sum(model_, batch_).backward();
  const Json& norms = entry_["lora_gradient_norms"];
  EXPECT_EQ(trainables.size(), norms.size());
  for (const lora::Trainable& trainable : trainables) {
    ASSERT_TRUE(norms.contains(trainable.name)) << trainable.name;
    const double want = norms[trainable.name];
    EXPECT_NEAR(trainable.tensor.grad().norm().item<double>(), want, loose_ * 1e-4 * want + 1e-6)
        << trainable.name;
  }
}

class QwenVlBfloat16 : public QwenVlGolden {
 protected:
  family::Model half_of(const family::ModelImpl& whole) const {
    const at::NoGradGuard no_grad;
    family::Model half =
        config_.family->build(config_, at::kBFloat16, at::kCPU, ops::BaseStorage::kDense);
    const auto parameters = whole.named_parameters();
    for (auto& item : half->named_parameters()) item.value().copy_(parameters[item.key()]);
    return half;
  }
};

TEST_P(QwenVlBfloat16, IsNear) {
  const at::NoGradGuard no_grad;
  const family::Model half = half_of(*model_);
  const ops::ComputeDtypeGuard compute(at::kBFloat16);
  const at::Tensor got = half->supervised_logprobs(batch_);
  // Each of about 30 layers and sums rounds a stream near 1 by 2^-9.
  const double most = 30 * std::ldexp(1.0, -9);
  EXPECT_LT(max_difference(got, tensor_of(entry_["logprobs"])), most);
  EXPECT_LT(max_difference(half->supervised_logprobs(packed_of(batch_)), got), most);
}

class QwenVlRecurrentBfloat16 : public QwenVlBfloat16 {};

/// Where the output of a gated delta rule nearly cancels, the norm after it turns rounding into
/// differences of any size, and routers after it choose other experts, in transformers, too. Thus
/// medians over models of slightly different weights are compared.
TEST_P(QwenVlRecurrentBfloat16, DeviatesAsTransformers) {
  const at::NoGradGuard no_grad;
  const family::Batch packed = packed_of(batch_);
  std::vector<double> found;
  for (uint64_t seed = 0; seed < 41; ++seed) {
    const auto generator = at::detail::createCPUGenerator(seed);
    const family::Model whole = make_qwen(config_);
    for (at::Tensor& weight : whole->parameters())
      weight.mul_(1 + 1e-3 * at::randn(weight.sizes(), generator));
    const family::Model half = half_of(*whole);
    const family::Batch& batch = seed % 2 == 0 ? batch_ : packed;
    const at::Tensor exact = whole->supervised_logprobs(batch);
    const ops::ComputeDtypeGuard compute(at::kBFloat16);
    found.push_back(max_difference(half->supervised_logprobs(batch), exact));
  }
  std::ranges::nth_element(found, found.begin() + 20);
  // The standard deviation of a median of 41 such values is about a fifth of it.
  EXPECT_LT(found[20], 2 * entry_["bfloat16_deviation"].get<double>());
}

TEST_P(QwenVlGolden, PackedIsPadded) {
  const at::NoGradGuard no_grad;
  EXPECT_LT(max_difference(model_->supervised_logprobs(packed_of(batch_)),
                           model_->supervised_logprobs(batch_)),
            kTolerance);
}

TEST_P(QwenVlGolden, RecomputedIsKept) {
  for (at::Tensor& parameter : model_->parameters()) parameter.set_requires_grad(true);
  const auto gradients = [&](int64_t every) {
    model_->zero_grad();
    const layers::RecomputeGuard guard(every);
    test::loss_sum(model_, batch_).backward();
    std::vector<at::Tensor> found;
    for (const at::Tensor& parameter : model_->parameters()) found.push_back(parameter.grad());
    return found;
  };
  const std::vector<at::Tensor> kept = gradients(0), again = gradients(1);
  for (size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(at::equal(kept[i], again[i])) << i;
}

TEST_P(QwenVlGolden, ACacheChangesNothing) {
  const at::NoGradGuard no_grad;
  llama::KvCache cache;
  model_->next_logits(batch_, cache);
  at::Tensor ids = batch_.input_ids_bt;
  std::vector<int64_t> lengths = cache.lengths;
  for (int64_t step = 0; step < 4; ++step) {
    family::Batch one;
    one.input_ids_bt = at::tensor({7 + step, 20 - step, 31 + step}, at::kLong).unsqueeze(1);
    const at::Tensor cached = model_->next_logits(one, cache);
    // The same tokens at the ends of the rows, without a cache.
    ids = at::constant_pad_nd(ids, {0, 1});
    for (int64_t row = 0; row < 3; ++row)
      ids[row][lengths[static_cast<size_t>(row)]++] = one.input_ids_bt[row][0];
    family::Batch whole = batch_;
    whole.input_ids_bt = ids;
    whole.lengths_b = at::tensor(lengths, at::kLong);
    const at::Tensor logits = model_->all_logits(whole);
    for (int64_t row = 0; row < 3; ++row)
      EXPECT_LT(max_difference(cached[row], logits[row][lengths[static_cast<size_t>(row)] - 1]),
                3 * kTolerance)
          << step << " " << row;
  }
}

TEST_P(QwenVlGolden, AnImageOfAnotherSizeIsRefused) {
  family::Batch batch = batch_;
  batch.images[1].width += 4;
  const ErrorInfo info = refusal([&] { model_->supervised_logprobs(batch); }, ErrorKind::kInput);
  EXPECT_NE(info.what.find("image"), std::string::npos);
}

TEST_P(QwenVlGolden, AnImageWhosePositionsLieApartIsRefused) {
  family::Batch batch = batch_;
  std::swap(batch.images[1], batch.images[2]);  // other sizes, same total
  const ErrorInfo info = refusal([&] { model_->supervised_logprobs(batch); }, ErrorKind::kInput);
  EXPECT_EQ(info.what, "the positions of an image are not contiguous");
}

std::vector<const char*> cases(bool recurrent) {
  std::vector<const char*> found(std::begin(kCases), std::end(kCases));
  std::erase_if(found,
                [&](std::string_view name) { return name.starts_with("qwen3_5") != recurrent; });
  return found;
}

INSTANTIATE_TEST_SUITE_P(Cases, QwenVlGolden, ::testing::ValuesIn(kCases), case_name);
INSTANTIATE_TEST_SUITE_P(Cases, QwenVlBfloat16, ::testing::ValuesIn(cases(false)), case_name);
INSTANTIATE_TEST_SUITE_P(Cases, QwenVlRecurrentBfloat16, ::testing::ValuesIn(cases(true)),
                         case_name);

}  // namespace
}  // namespace lft::test::qwen_vl_test
