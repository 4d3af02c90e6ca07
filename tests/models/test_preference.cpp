// The losses of preference pairs and of KTO against TRL (tests/goldens/models/preference.json) and
// finite differences; the sums of answers in padded and packed batches.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "models/objective/kto.h"
#include "models/objective/pair_losses.h"

namespace lft::test::preference_test {
namespace {

using Json = nlohmann::json;
using PairLoss = at::Tensor (*)(const objective::PairScores&, const objective::PairOptions&);

const std::map<std::string, PairLoss> kLosses = {
    {"dpo", objective::dpo_loss},     {"ipo", objective::ipo_loss},
    {"hinge", objective::hinge_loss}, {"apo_zero", objective::apo_zero_loss},
    {"simpo", objective::simpo_loss}, {"orpo", objective::orpo_loss}};

const Json& golden() {
  static const Json json =
      Json::parse(std::ifstream(LFT_SOURCE_DIR "/tests/goldens/models/preference.json"));
  return json;
}

/// The golden's answers as rows after prompts of different lengths.
struct Rows {
  family::Batch padded, packed;
  std::vector<double> logprobs;  // of all supervised tokens, in order
};

Rows golden_rows() {
  std::vector<std::vector<int64_t>> labels;
  Rows rows;
  size_t longest = 0;
  for (const Json& pair : golden()["policy"]) {
    for (const Json& answer : pair) {
      labels.emplace_back(1 + labels.size() % 3, -100);
      labels.back().resize(labels.back().size() + answer.size(), 5);
      longest = std::max(longest, labels.back().size());
      for (const double logprob : answer) rows.logprobs.push_back(logprob);
    }
  }
  std::vector<int64_t> flat;
  auto sequences = std::make_shared<ops::PackedSequences>();
  sequences->starts = {0};
  rows.padded.labels_bt =
      at::full({std::ssize(labels), static_cast<int64_t>(longest)}, -100, at::kLong);
  for (size_t row = 0; row < labels.size(); ++row) {
    const at::Tensor of_row = at::tensor(labels[row], at::kLong);
    rows.padded.labels_bt[static_cast<int64_t>(row)].narrow(0, 0, of_row.size(0)).copy_(of_row);
    flat.insert(flat.end(), labels[row].begin(), labels[row].end());
    sequences->starts.push_back(std::ssize(flat));
  }
  rows.packed.labels_bt = at::tensor(flat, at::kLong).unsqueeze(0);
  rows.packed.packed = sequences;
  return rows;
}

at::Tensor reference() {
  std::vector<double> sums;
  for (const Json& pair : golden()["reference"]) {
    for (const double sum : pair) sums.push_back(sum);
  }
  return at::tensor(sums, at::kDouble);
}

objective::PairOptions options_of(const std::string& name) {
  return {.beta = golden()["losses"][name]["beta"].get<double>()};
}

TEST(Preference, SumsOfAnswersAreThoseOfTheirTokens) {
  const Rows rows = golden_rows();
  const at::Tensor logprobs = at::tensor(rows.logprobs, at::kDouble);
  for (const family::Batch& batch : {rows.padded, rows.packed}) {
    const objective::AnswerSums sums = objective::sum_answers(logprobs, batch);
    ASSERT_EQ(sums.logprobs_n.numel(), 12);
    int64_t n = 0;
    for (const Json& pair : golden()["policy"]) {
      for (const Json& answer : pair) {
        double want = 0;
        for (const double logprob : answer) want += logprob;
        EXPECT_DOUBLE_EQ(sums.logprobs_n[n].item<double>(), want) << n;
        EXPECT_EQ(sums.tokens_n[n].item<double>(), static_cast<double>(answer.size())) << n;
        ++n;
      }
    }
  }
}

/// In FP64 as the golden, at most 12 roundings of terms below 10; TRL's ORPO rounds its sums to
/// FP32.
TEST(Preference, LossesAreTrls) {
  const Rows rows = golden_rows();
  const objective::PairScores pairs = objective::pair_scores(
      objective::sum_answers(at::tensor(rows.logprobs, at::kDouble), rows.padded), reference());
  for (const auto& [name, loss] : kLosses) {
    const at::Tensor got = loss(pairs, options_of(name));
    const Json& want = golden()["losses"][name]["of"];
    for (size_t pair = 0; pair < want.size(); ++pair)
      EXPECT_NEAR(got[static_cast<int64_t>(pair)].item<double>(), want[pair].get<double>(),
                  name == "orpo" ? 1e-6 : 1e-13)
          << name << " " << pair;
  }
}

TEST(Preference, SmoothedDpoWeighsBothDirections) {
  const Rows rows = golden_rows();
  const objective::PairScores pairs = objective::pair_scores(
      objective::sum_answers(at::tensor(rows.logprobs, at::kDouble), rows.padded), reference());
  objective::PairScores swapped = pairs;
  std::swap(swapped.chosen, swapped.rejected);
  std::swap(swapped.reference_chosen, swapped.reference_rejected);
  const objective::PairOptions plain{.beta = 0.3};
  const at::Tensor want =
      0.9 * objective::dpo_loss(pairs, plain) + 0.1 * objective::dpo_loss(swapped, plain);
  const at::Tensor got = objective::dpo_loss(pairs, {.beta = 0.3, .label_smoothing = 0.1});
  EXPECT_LT((got - want).abs().max().item<double>(), 1e-14);
}

/// Central differences with a step of 1e-5: an error of its square times third derivatives below
/// 10, and roundings of 1e-15 / 1e-5.
TEST(Preference, GradientsAreFiniteDifferences) {
  const Rows rows = golden_rows();
  const at::Tensor logprobs = at::tensor(rows.logprobs, at::kDouble);
  constexpr double kStep = 1e-5;
  for (const auto& [name, loss] : kLosses) {
    const auto total = [&, loss = loss, name = name](const at::Tensor& logprobs_k) {
      return loss(objective::pair_scores(objective::sum_answers(logprobs_k, rows.padded),
                                         reference()),
                  options_of(name))
          .sum();
    };
    const at::Tensor input = logprobs.clone().requires_grad_(true);
    const at::Tensor gradient = torch::autograd::grad({total(input)}, {input})[0];
    for (int64_t token = 0; token < logprobs.numel(); ++token) {
      at::Tensor up = logprobs.clone(), down = logprobs.clone();
      up[token] += kStep;
      down[token] -= kStep;
      const double slope = (total(up) - total(down)).item<double>() / (2 * kStep);
      EXPECT_NEAR(gradient[token].item<double>(), slope, 1e-8) << name << " " << token;
    }
  }
}

/// The golden's answers as labelled rows of KTO, in one batch.
struct Labelled {
  explicit Labelled(const Json& of)
      : rows(golden_rows()), logprobs(at::tensor(rows.logprobs, at::kDouble)) {
    const Json& asked = of["options"];
    kto = objective::make_kto({.beta = asked["beta"],
                               .desirable_weight = asked["desirable_weight"],
                               .undesirable_weight = asked["undesirable_weight"]});
    const auto labels = of["labels"].get<std::vector<bool>>();
    for (family::Batch* batch : {&rows.padded, &rows.packed}) {
      batch->reference_n = reference();
      batch->desirable_n = at::empty({std::ssize(labels)}, at::kBool);
      for (size_t i = 0; i < labels.size(); ++i)
        batch->desirable_n[static_cast<int64_t>(i)] = static_cast<bool>(labels[i]);
    }
  }
  Rows rows;
  at::Tensor logprobs;
  std::unique_ptr<const objective::Objective> kto;
};

/// As above; the KL divergence is the golden's own.
TEST(Preference, KtoIsTrls) {
  for (const Json& of : golden()["kto"]) {
    const Labelled rows(of);
    const Json& metrics = of["metrics"];
    const double kl = metrics["kl"];
    for (const family::Batch& batch : {rows.rows.padded, rows.rows.packed}) {
      const double mean = rows.kto->terms(rows.logprobs, batch, kl).item<double>() / 12;
      EXPECT_NEAR(mean, of["loss"].get<double>(), 1e-13);
      const at::Tensor sums = rows.kto->figures(rows.logprobs, batch, kl).sum(0);
      EXPECT_NEAR(sums[0].item<double>() / 12, mean, 1e-13);
      const auto figures = rows.kto->means(
          {sums.const_data_ptr<double>() + 1, static_cast<size_t>(sums.numel()) - 1}, 12);
      ASSERT_EQ(figures.size(), 6u);
      const char* const names[] = {"rewards/chosen", "rewards/rejected", "rewards/margins",
                                   "logps/chosen",   "logps/rejected",   "kl"};
      for (size_t i = 0; i < figures.size(); ++i)
        EXPECT_NEAR(figures[i].second, metrics[names[i]].get<double>(), 1e-13) << names[i];
    }
  }
}

TEST(Preference, KtoWithoutRowsOfALabelHasNoFigureOfIt) {
  Labelled rows(golden()["kto"][0]);
  rows.rows.padded.desirable_n.fill_(true);
  const at::Tensor sums = rows.kto->figures(rows.logprobs, rows.rows.padded, 0).sum(0);
  std::string names;
  for (const auto& [name, value] : rows.kto->means(
           {sums.const_data_ptr<double>() + 1, static_cast<size_t>(sums.numel()) - 1}, 12))
    names += name + " ";
  EXPECT_EQ(names, "rewards_chosen logps_chosen kl ");
}

/// As for pairs.
TEST(Preference, GradientsOfKtoAreFiniteDifferences) {
  constexpr double kStep = 1e-5;
  for (const Json& of : golden()["kto"]) {
    const Labelled rows(of);
    const auto total = [&](const at::Tensor& logprobs_k) {
      return rows.kto->terms(logprobs_k, rows.rows.padded, of["metrics"]["kl"]);
    };
    const at::Tensor input = rows.logprobs.clone().requires_grad_(true);
    const at::Tensor gradient = torch::autograd::grad({total(input)}, {input})[0];
    for (int64_t token = 0; token < rows.logprobs.numel(); ++token) {
      at::Tensor up = rows.logprobs.clone(), down = rows.logprobs.clone();
      up[token] += kStep;
      down[token] -= kStep;
      const double slope = (total(up) - total(down)).item<double>() / (2 * kStep);
      EXPECT_NEAR(gradient[token].item<double>(), slope, 1e-8) << token;
    }
  }
}

/// Mean probabilities near 1 and near 0: the odds keep their digits, and gradients are finite.
TEST(Preference, OddsAreFiniteAtTheEnds) {
  const at::Tensor ends = at::tensor({-1e-12, -1e-3, -5.0, -400.0}, at::kDouble);
  for (const at::Tensor& other : {ends, ends.flip(0)}) {
    const at::Tensor chosen = ends.clone().requires_grad_(true);
    const objective::PairScores pairs{.chosen = chosen,
                                      .rejected = other,
                                      .chosen_tokens = at::ones_like(ends),
                                      .rejected_tokens = at::ones_like(ends)};
    const at::Tensor loss = objective::orpo_loss(pairs, {});
    EXPECT_TRUE(at::isfinite(loss).all().item<bool>());
    EXPECT_TRUE(at::isfinite(torch::autograd::grad({loss.sum()}, {chosen})[0]).all().item<bool>());
  }
}

}  // namespace
}  // namespace lft::test::preference_test
