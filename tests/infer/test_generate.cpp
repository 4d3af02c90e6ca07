// Decoding: sampling from given logits (closed forms), and batched and cached decoding against
// full passes.
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>

#include "models/family/model.h"
#include "src/base/signals.h"
#include "src/data/batch.h"
#include "src/data/loader.h"
#include "src/hf/model_dir.h"
#include "src/hf/weights_load.h"
#include "src/infer/evaluate.h"
#include "src/infer/generate.h"
#include "support/expect_error.h"
#include "support/llava.h"
#include "support/prompt_of.h"
#include "support/temp_dir.h"
#include "support/tiny_llava.h"

namespace lft::generate_test {
using namespace lft::data;
using namespace lft::hf;
using namespace lft::infer;
using namespace lft::family;
using namespace lft::llava;
namespace {

// torch.softmax(torch.tensor([2.0, 1.0, 0.5, -1.0]) / 0.7, 0): 0.7295361520, 0.1748340950,
// 0.0855885730, 0.0100411800
const std::vector<float> kLogits = {0.5f, 2.0f, -1.0f, 1.0f};  // the same, in another order

GenerateOptions warm(double temperature, double top_p = 1, int64_t top_k = 0) {
  GenerateOptions options;
  options.temperature = temperature;
  options.top_p = top_p;
  options.top_k = top_k;
  return options;
}

TEST(PickToken, GreedyTakesTheFirstOfTheLargest) {
  EXPECT_EQ(pick_token(at::tensor(kLogits), {}, 0.99), 1);
  EXPECT_EQ(pick_token(at::tensor({1.0f, 3.0f, 3.0f}), {}, 0.5), 1);
}

TEST(PickToken, TemperatureDrawsByProbability) {
  const at::Tensor logits = at::tensor(kLogits);
  EXPECT_EQ(pick_token(logits, warm(0.7), 0.0), 1);
  EXPECT_EQ(pick_token(logits, warm(0.7), 0.7295), 1);
  EXPECT_EQ(pick_token(logits, warm(0.7), 0.7296), 3);
  EXPECT_EQ(pick_token(logits, warm(0.7), 0.9043), 3);
  EXPECT_EQ(pick_token(logits, warm(0.7), 0.9044), 0);
  EXPECT_EQ(pick_token(logits, warm(0.7), 0.9899), 0);
  EXPECT_EQ(pick_token(logits, warm(0.7), 0.9901), 2);
}

TEST(PickToken, TopPKeepsTheSmallestSetThatHoldsIt) {
  const at::Tensor logits = at::tensor(kLogits);
  for (const double uniform : {0.0, 0.5, 0.999999})
    EXPECT_EQ(pick_token(logits, warm(0.7, 0.7, 0), uniform), 1);
  // Two tokens kept, 0.9043702 in all: the boundary is 0.7295361520 / 0.9043702470 = 0.8066786.
  EXPECT_EQ(pick_token(logits, warm(0.7, 0.8, 0), 0.8066), 1);
  EXPECT_EQ(pick_token(logits, warm(0.7, 0.8, 0), 0.8067), 3);
  EXPECT_EQ(pick_token(logits, warm(0.7, 0.8, 0), 0.999999), 3);
}

TEST(PickToken, TopKKeepsTheLargestAndTheirEquals) {
  const at::Tensor logits = at::tensor(kLogits);
  for (const double uniform : {0.0, 0.5, 0.999999})
    EXPECT_EQ(pick_token(logits, warm(0.7, 1, 1), uniform), 1);
  EXPECT_EQ(pick_token(logits, warm(0.7, 1, 2), 0.8066), 1);
  EXPECT_EQ(pick_token(logits, warm(0.7, 1, 2), 0.8067), 3);
  EXPECT_EQ(pick_token(logits, warm(0.7, 1, 9), 0.9901), 2);
  const at::Tensor equal = at::tensor({1.0f, 3.0f, 3.0f, 3.0f});
  EXPECT_EQ(pick_token(equal, warm(1, 1, 2), 0.99), 3);
  // top_p applies after top_k: of 0.8066 and 0.1934 the first covers 0.8.
  EXPECT_EQ(pick_token(logits, warm(0.7, 0.8, 2), 0.9999), 1);
}

TEST(PickToken, RepeatedTokensAreLessLikelyEachOnce) {
  at::Tensor logits = at::tensor({2.0f, -1.0f, 0.5f, 4.0f});
  penalise_repetition(logits, {1, 0, 0, 99, -1}, 2);
  EXPECT_TRUE(at::equal(logits, at::tensor({1.0f, -2.0f, 0.5f, 4.0f})));
  penalise_repetition(logits, {3}, 1);
  EXPECT_EQ(logits[3].item<float>(), 4);
}

class Generate : public ::testing::Test {
 protected:
  Generate() {
    model = load_model(ModelDir::open(test::write_tiny_llava(scratch_.file("model"))), at::kFloat,
                       at::kCPU);
    encode.config = model->config;
    encode.images = test::squares(encode.config, "pad", {0.5f, 0.5f, 0.5f}, {0.25f, 0.25f, 0.25f});
  }

  Sample prompt(const std::vector<int64_t>& ids, bool image) const {
    Sample sample{.id = "p", .input_ids = {1}, .labels = {}, .images = {}};
    if (image) {
      sample.input_ids.insert(sample.input_ids.end(), 16, 60);
      PixelImage pixels{.shape = {.height = 16, .width = 16}};
      for (int i = 0; i < 3 * 16 * 16; ++i) pixels.chw.push_back(static_cast<uint8_t>(i * 37));
      sample.images.push_back(pixels);
    }
    sample.input_ids.insert(sample.input_ids.end(), ids.begin(), ids.end());
    sample.labels.assign(sample.input_ids.size(), -100);
    return sample;
  }

  /// Greedy decoding with a full pass for every token.
  std::vector<int64_t> by_full_passes(Sample sample, int64_t most) {
    at::NoGradGuard no_grad;
    std::vector<int64_t> answer;
    while (static_cast<int64_t>(answer.size()) < most) {
      at::Tensor logits_v = model->all_logits(collate({sample}, encode, at::kCPU))[0][-1];
      logits_v[60] = -1e9;  // the image token is never generated
      const int64_t id = logits_v.argmax().item<int64_t>();
      if (id == model->config.eos_tokens[0]) break;
      answer.push_back(id);
      sample.input_ids.push_back(id);
      sample.labels.push_back(-100);
    }
    return answer;
  }

  test::TempDir scratch_;
  Model model{nullptr};
  EncodeOptions encode;
};

TEST_F(Generate, CachedAndBatchedEqualFullPasses) {
  const std::vector<Sample> prompts = {prompt({5, 9, 11}, true), prompt({7}, false),
                                       prompt({30, 31, 32, 33, 34, 35, 36}, true)};
  const auto batched =
      generate_batch(model, prompts, encode, {.max_new_tokens = 12, .on_token = {}}, at::kFloat);
  ASSERT_EQ(batched.size(), 3u);
  for (size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(
        generate(model, prompts[i], encode, {.max_new_tokens = 12, .on_token = {}}, at::kFloat),
        by_full_passes(prompts[i], 12))
        << i;
    EXPECT_EQ(batched[i].ids, by_full_passes(prompts[i], 12)) << i;
  }
}

TEST_F(Generate, AnswersJoinAndLeaveBetweenTokens) {
  const std::vector<Sample> prompts = {prompt({5, 9, 11}, true), prompt({7}, false),
                                       prompt({30, 31, 32, 33, 34, 35, 36}, true),
                                       prompt({12, 8}, false)};
  constexpr int64_t kMost = 10;
  std::vector<std::vector<int64_t>> answers(prompts.size());
  std::vector<FinishedAnswer> ended;
  Decoding decoding(model, encode, at::kFloat);
  const auto note = [&](const std::vector<FinishedAnswer>& now) {
    ended.insert(ended.end(), now.begin(), now.end());
  };
  const auto begin = [&](size_t key, int64_t most) {
    const GenerateOptions options{.max_new_tokens = most, .on_token = [&](size_t of, int64_t id) {
                                    answers[of].push_back(id);
                                  }};
    note(decoding.begin({{.key = key, .sample = &prompts[key], .options = options}}));
  };
  begin(0, kMost);
  note(decoding.step());
  begin(1, 3);  // ends before the existing one
  begin(2, kMost);
  note(decoding.step());
  note(decoding.step());
  begin(3, 1000);
  note(decoding.step());
  decoding.drop(3);
  decoding.drop(99);  // belongs to no row
  const size_t dropped_after = answers[3].size();
  while (decoding.open() > 0) note(decoding.step());
  EXPECT_TRUE(decoding.step().empty());
  EXPECT_EQ(answers[0], by_full_passes(prompts[0], kMost));
  EXPECT_EQ(answers[1], by_full_passes(prompts[1], 3));
  EXPECT_EQ(answers[2], by_full_passes(prompts[2], kMost));
  EXPECT_EQ(answers[3], by_full_passes(prompts[3], static_cast<int64_t>(dropped_after)));
  ASSERT_EQ(ended.size(), 3u);
  for (const FinishedAnswer& one : ended) {
    const size_t most = one.key == 1 ? 3 : kMost;
    EXPECT_EQ(one.by_limit, answers[one.key].size() == most) << one.key;
  }
}

TEST_F(Generate, APromptThatLeavesNoPositionIsBegunWithNoOther) {
  const Sample good = prompt({5, 9}, false),
               bad = prompt(std::vector<int64_t>(model->config.text.max_positions - 1, 7), false);
  Decoding decoding(model, encode, at::kFloat);
  EXPECT_LFT_ERROR(ErrorKind::kInput, "no position",
                   decoding.begin({{.key = 0, .sample = &good, .options = {}},
                                   {.key = 1, .sample = &bad, .options = {}}}));
  EXPECT_EQ(decoding.open(), 0u);
}

TEST_F(Generate, StopsAtAnyEndTokenOfTheEncoding) {
  const Sample p = prompt({5, 9, 11}, true);
  encode.config.eos_tokens = {};
  const GenerateOptions most{.max_new_tokens = 12, .on_token = {}};
  const std::vector<int64_t> all = generate(model, p, encode, most, at::kFloat);
  ASSERT_EQ(all.size(), 12u);
  for (const size_t last : {size_t{3}, size_t{7}}) {
    encode.config.eos_tokens = {2, all[last]};
    const auto first = std::find_if(all.begin(), all.end(),
                                    [&](int64_t id) { return id == all[last] || id == 2; });
    EXPECT_EQ(generate(model, p, encode, most, at::kFloat),
              std::vector<int64_t>(all.begin(), first));
  }
}

TEST_F(Generate, SamplingRepeatsWithItsSeed) {
  const Sample p = prompt({5, 9, 11}, true);
  const GenerateOptions drawn{
      .max_new_tokens = 20, .temperature = 2, .top_p = 0.95, .seed = 3, .on_token = {}};
  const auto once = generate(model, p, encode, drawn, at::kFloat);
  EXPECT_EQ(once, generate(model, p, encode, drawn, at::kFloat));
  GenerateOptions other = drawn;
  other.seed = 4;
  EXPECT_NE(once, generate(model, p, encode, other, at::kFloat));
}

TEST_F(Generate, ASignalEndsAnAnswerBetweenTwoTokens) {
  const Sample p = prompt({5, 9, 11}, true);
  const std::vector<int64_t> all =
      generate(model, p, encode, {.max_new_tokens = 12, .on_token = {}}, at::kFloat);
  ASSERT_GT(all.size(), 3u);
  install_signal_handlers();
  size_t tokens = 0;
  const auto interrupt = [&](size_t, int64_t) {
    if (++tokens == 3) raise(SIGINT);
  };
  EXPECT_EQ(generate(model, p, encode, {.max_new_tokens = 12, .on_token = interrupt}, at::kFloat),
            std::vector<int64_t>(all.begin(), all.begin() + 3));
  EXPECT_TRUE(take_interrupt());
}

/// Prompts of one sample are processed once, and drawn as if each were alone.
TEST_F(Generate, DrawsOfOneSampleAreIndependent) {
  const Sample shared = prompt({5, 9, 11}, true), other = prompt({6, 4}, false);
  const auto drawn = [](uint64_t seed) {
    return GenerateOptions{.max_new_tokens = 8, .temperature = 2, .seed = seed, .on_token = {}};
  };
  std::vector<std::vector<int64_t>> answers(4);
  std::vector<Decoding::Prompt> prompts;
  for (size_t key = 0; key < answers.size(); ++key) {
    GenerateOptions options = drawn(key);
    options.max_new_tokens = key == 1 ? 1 : 8;  // one row ends with its first token
    options.on_token = [&](size_t of, int64_t id) { answers[of].push_back(id); };
    prompts.push_back({.key = key, .sample = key < 3 ? &shared : &other, .options = options});
  }
  Decoding decoding(model, encode, at::kFloat);
  decoding.begin(prompts);
  while (decoding.open() > 0) decoding.step();
  for (const size_t key : {0, 2, 3}) {
    const Sample& sample = key < 3 ? shared : other;
    EXPECT_EQ(answers[key], generate(model, sample, encode, drawn(key), at::kFloat)) << key;
  }
  EXPECT_EQ(answers[1].size(), 1u);
  EXPECT_NE(answers[0], answers[2]);
}

/// Log-probabilities are those of a full pass, for any options of the draw.
TEST_F(Generate, ScoresAreOfTheModelsOwnDistribution) {
  const Sample p = prompt({5, 9, 11}, true);
  for (const double temperature : {0.0, 1.7}) {
    std::vector<int64_t> answer;
    std::vector<TokenScores> scores;
    GenerateOptions options{.max_new_tokens = 6,
                            .temperature = temperature,
                            .top_k = 3,
                            .repetition_penalty = 1.5,
                            .seed = 4,
                            .on_token = [&](size_t, int64_t id) { answer.push_back(id); },
                            .top_scores = 4};
    options.on_scores = [&](size_t, TokenScores one) {
      EXPECT_EQ(scores.size(), answer.size());  // before the token
      scores.push_back(std::move(one));
    };
    Decoding decoding(model, encode, at::kFloat);
    decoding.begin({{.key = 0, .sample = &p, .options = options}});
    while (decoding.open() > 0) decoding.step();
    ASSERT_EQ(scores.size(), answer.size());
    Sample whole = p;
    for (size_t i = 0; i < answer.size(); ++i) {
      llama::KvCache cache;
      const at::NoGradGuard no_grad;
      const at::Tensor want_v = at::log_softmax(
          model->next_logits(collate({whole}, encode, at::kCPU), cache)[0].to(at::kDouble), 0);
      EXPECT_NEAR(scores[i].logprob, want_v[answer[i]].item<double>(), 1e-4);
      ASSERT_EQ(scores[i].top.size(), 4u);
      const auto [values, ids] = want_v.topk(4);
      for (int64_t k = 0; k < 4; ++k) {
        EXPECT_NEAR(scores[i].top[static_cast<size_t>(k)].second, values[k].item<double>(), 1e-4);
        EXPECT_EQ(scores[i].top[static_cast<size_t>(k)].first, ids[k].item<int64_t>());
      }
      whole.input_ids.push_back(answer[i]);
    }
  }
}

TEST_F(Generate, StopsAtTheLastPositionAndRefusesAPromptThatFillsThem) {
  const auto filled = [&](int64_t count) {
    return prompt(std::vector<int64_t>(count - 1, 7), false);
  };
  const int64_t positions = model->config.text.max_positions;
  EXPECT_LE(generate(model, filled(positions - 2), encode, {.max_new_tokens = 50, .on_token = {}},
                     at::kFloat)
                .size(),
            2u);
  EXPECT_LFT_ERROR(ErrorKind::kInput, "no position",
                   generate(model, filled(positions), encode, {.on_token = {}}, at::kFloat));
}

TEST(PromptOf, CutsBeforeTheLastAnswer) {
  const Sample turns{.id = "a",
                     .input_ids = {1, 5, 6, 2, 7, 8, 2},
                     .labels = {-100, -100, 6, 2, -100, 8, 2},
                     .images = {}};
  EXPECT_EQ(test::prompt_of(turns).input_ids, (std::vector<int64_t>{1, 5, 6, 2, 7}));
  EXPECT_EQ(test::prompt_of(turns).supervised(), 0);
}

}  // namespace
}  // namespace lft::generate_test
