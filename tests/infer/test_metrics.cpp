// Metrics against the reference implementations (goldens/make_metrics.py), and over an
// evaluation's records.
#include <gtest/gtest.h>

#include "src/infer/captions.h"
#include "src/infer/captions_words.h"
#include "src/infer/evaluate.h"
#include "src/infer/stop_strings.h"
#include "src/io/json.h"
#include "support/slurp.h"

namespace lft::metrics_test {
using namespace lft::infer;
using namespace lft::io;
namespace {

const Json& goldens() {
  static const Json kGoldens =
      Json::parse(test::slurp(LFT_SOURCE_DIR "/tests/goldens/metrics/metrics.json"));
  return kGoldens;
}

/// Quotients and sums of a few doubles: four units in the last place.
TEST(Metrics, AnswersAreScoredAsThePublishedEvaluationsDo) {
  for (const char* const name : {"vqa", "anls", "relaxed"}) {
    const Json& cases = goldens().at(name);
    ASSERT_GE(cases.size(), 10u);
    for (const Json& each : cases) {
      const auto score = score_answer(*find_metric(name), each.at(0),
                                      each.at(1).get<std::vector<std::string>>(), "");
      EXPECT_NEAR(score.value(), each.at(2).get<double>(), 1e-15) << name << " " << each;
    }
  }
}

TEST(Metrics, OneAnswerOfVqaCountsAsTen) {
  EXPECT_EQ(score_answer(Metric::kVqa, "The Cat.", {"cat"}, ""), 1);
  EXPECT_EQ(score_answer(Metric::kVqa, "dog", {"cat"}, ""), 0);
}

/// Sums of logarithms over a few hundred n-grams in another order.
TEST(Metrics, CaptionsAreScoredAsCocoDoes) {
  for (const Json& golden : goldens().at("caption")) {
    std::vector<Caption> captions;
    for (const Json& pair : golden.at("pairs"))
      captions.push_back({pair.at(0), pair.at(1).get<std::vector<std::string>>()});
    const CaptionScores scores = score_captions(captions);
    EXPECT_NEAR(scores.bleu4, golden.at("bleu4").get<double>(), 1e-12);
    EXPECT_NEAR(scores.cider, golden.at("cider").get<double>(), 1e-12);
    ASSERT_EQ(scores.ciders.size(), golden.at("ciders").size());
    for (size_t i = 0; i < scores.ciders.size(); ++i)
      EXPECT_NEAR(scores.ciders[i], golden.at("ciders")[i].get<double>(), 1e-11) << i;
  }
  EXPECT_EQ(score_captions({}).cider, 0);
}

TEST(Metrics, WordsOfCaptionsArePtbTokens) {
  for (const Json& each : goldens().at("words")) {
    std::string words;
    for (const std::string& word : caption_words(each.at(0)))
      words += (words.empty() ? "" : " ") + word;
    EXPECT_EQ(words, each.at(1).get<std::string>());
  }
  // As the PTBTokenizer of pycocoevalcap: the period of a sentence, not that of an abbreviation.
  const auto last = [](const std::string& caption) { return caption_words(caption).back(); };
  EXPECT_EQ(last("The price on the sign is 3.50."), "3.50");
  EXPECT_EQ(last("A page of example.com."), "example.com");
  EXPECT_EQ(last("A clock shows 5 p.m."), "p.m.");
  EXPECT_EQ(last("A map of the U.S."), "u.s.");
}

TEST(Metrics, AChoiceIsNamedInManyWays) {
  const std::string question = "What is it?\nA. a dog\nB. a cat\n(C) two birds";
  for (const std::string answer : {"B", "b", "(B)", "B.", "B)", "[B]", " B. a cat", "B: a cat",
                                   "The answer is B.", "So the answer is (b), since it purrs.",
                                   "Answer: B", "a cat", "A cat.", "option B", "**Answer: B**"})
    EXPECT_EQ(choice_letter(answer, question), 'B') << answer;
  EXPECT_EQ(choice_letter("two birds", question), 'C');
  for (const std::string answer : {"", "a bird", "Blue", "because", "?", "AB"})
    EXPECT_EQ(choice_letter(answer, question), 0) << answer;
  EXPECT_EQ(score_answer(Metric::kChoice, "b", {"B"}, ""), 1);
  EXPECT_EQ(score_answer(Metric::kChoice, "the cat", {"B"}, question), 0);
  EXPECT_EQ(score_answer(Metric::kChoice, "a cat", {"B. a cat"}, question), 1);
}

TEST(Metrics, ExactIsEqualButForSpaceAroundIt) {
  EXPECT_EQ(score_answer(Metric::kExact, " red\n", {"blue", "red"}, ""), 1);
  EXPECT_EQ(score_answer(Metric::kExact, "Red", {"red"}, ""), 0);
  EXPECT_FALSE(score_answer(Metric::kCaption, "x", {"x"}, "").has_value());
  EXPECT_FALSE(find_metric("none").has_value());
  EXPECT_EQ(lower_text("ÀÉß \xff Ω"), "àéß \xff ω");
}

EvalRecord record(const std::string& answer, const std::vector<std::string>& references) {
  EvalRecord record;
  record.answer = answer;
  record.answered = true;
  record.references = references;
  record.match = !references.empty() && answer == references.front();
  record.score = record.match ? 1 : 0;
  return record;
}

/// A record without a reference is excluded from every mean.
TEST(Metrics, FiguresAreOfWhatWasCompared) {
  EvalResult result;
  result.records = {record("a", {"a"}), record("b", {"c"}), record("d", {})};
  sum_up(result, Metric::kVqa);
  EXPECT_EQ(result.answered, 3);
  EXPECT_EQ(result.compared, 2);
  const auto figures = figures_of(result, Metric::kVqa);
  ASSERT_EQ(figures.size(), 2u);
  EXPECT_EQ(figures[0], (std::pair<std::string, double>("exact_match", 0.5)));
  EXPECT_EQ(figures[1], (std::pair<std::string, double>("vqa", 0.5)));
  EvalResult alone;
  alone.records = {record("d", {})};
  sum_up(alone, Metric::kCaption);
  EXPECT_TRUE(figures_of(alone, Metric::kCaption).empty());
}

}  // namespace
}  // namespace lft::metrics_test
