// The verdict on a run, for each rule, from curves of known shape.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "src/report/verdict.h"

namespace lft::verdict_test {
using namespace lft::io;
using namespace lft::report;
namespace {

using Curve = std::function<double(int)>;

/// `steps` steps whose losses are the curve's with 1% of noise.
std::string steps(int count, const Curve& loss) {
  std::string text;
  for (int step = 1; step <= count; ++step)
    text +=
        Json({{"step", step}, {"loss", loss(step) * (step % 2 == 0 ? 1.01 : 0.99)}}).dump() + "\n";
  return text;
}

std::string event(const std::string& name, int step, const Json& fields) {
  Json line = {{"event", name}, {"step", step}};
  line.update(fields);
  return line.dump() + "\n";
}

std::string evals(const std::vector<std::pair<int, double>>& losses) {
  std::string text;
  for (const auto& [step, loss] : losses) text += event("eval", step, {{"eval_loss", loss}});
  return text;
}

Verdict judge(const std::string& text, const RunEnd& end = {.total_steps = 100}) {
  return judge_run(read_metrics(text, "m"), end);
}

double falls_and_settles(int step) { return 0.2 + 2 * std::exp(-step / 10.0); }
double falls_to_the_end(int step) { return 3 - 0.02 * step; }

TEST(Verdict, LearntByItsTrainingLossOrItsHeldOutLoss) {
  const Verdict training = judge(steps(100, falls_and_settles));
  EXPECT_EQ(training.kind, "learnt");
  // Means of the first and the last ten losses: 0.2 + 0.2 x sum of exp(-k/10) = 1.40, and 0.2.
  EXPECT_EQ(training.sentence, "Learnt: the training loss fell from 1.4 to 0.2.");
  const Verdict held_out =
      judge(steps(100, falls_and_settles) + evals({{10, 1.5}, {50, 0.41}, {100, 0.4}}));
  EXPECT_EQ(held_out.kind, "learnt");
  EXPECT_EQ(judge(steps(100, falls_and_settles) + evals({{100, 0.4}})).sentence,
            "Learnt: the training loss fell from 1.4 to 0.2, the held-out loss is 0.4.");
  EXPECT_EQ(
      held_out.sentence,
      "Learnt: the training loss fell from 1.4 to 0.2, the held-out loss fell from 1.5 to 0.4.");
}

TEST(Verdict, StillFallingUnlessAHeldOutLossWasLower) {
  const std::string falling = steps(100, falls_to_the_end);
  const Verdict verdict = judge(falling);
  EXPECT_EQ(verdict.kind, "still_falling");
  EXPECT_EQ(verdict.sentence,
            "Learnt, and the loss still falls: the training loss fell from 2.89 to 1.09; more "
            "steps may lower it further.");
  EXPECT_EQ(judge(falling + evals({{50, 2.0}, {100, 1.5}})).kind, "still_falling");
  EXPECT_EQ(judge(falling + evals({{20, 2.0}, {50, 1.5}, {100, 1.52}})).kind, "learnt");
}

TEST(Verdict, OverfitsFromTheLowestHeldOutLossOn) {
  const std::string run =
      steps(100, falls_to_the_end) + evals({{25, 1.6}, {50, 1.2}, {75, 1.4}, {100, 1.9}});
  const Verdict verdict = judge(run);
  EXPECT_EQ(verdict.kind, "overfits");
  EXPECT_EQ(verdict.sentence,
            "Overfits: the held-out loss rose from 1.2 at step 50 to 1.9 while the training loss "
            "fell; train.keep_best: eval_loss keeps the weights of the best evaluation.");
  const Verdict kept = judge(run, {.total_steps = 100, .kept_step = 50});
  EXPECT_NE(kept.sentence.find("; the result has the weights of step 50."), std::string::npos)
      << kept.sentence;
  EXPECT_NE(judge(steps(100, falls_to_the_end) + evals({{50, 1.2}, {100, 1.23}})).kind, "overfits")
      << "within 3%";
}

TEST(Verdict, IgnoresItsImages) {
  const auto with_images = [](const Json& losses) {
    return judge(steps(100, falls_and_settles) + event("images", 100, losses));
  };
  const Verdict verdict =
      with_images({{"own_loss", 6.2996}, {"other_loss", 6.3624}, {"grey_loss", 6.3315}});
  EXPECT_EQ(verdict.kind, "ignores_images");
  EXPECT_EQ(verdict.sentence,
            "Ignores its images: the loss is 6.3 with the right images, 6.36 with swapped ones and "
            "6.33 with blank ones.");
  EXPECT_EQ(with_images({{"own_loss", 1.0}, {"grey_loss", 1.01}}).kind, "ignores_images");
  EXPECT_EQ(with_images({{"own_loss", 1.0}, {"other_loss", 1.03}, {"grey_loss", 1.0}}).kind,
            "learnt");
  EXPECT_EQ(with_images({{"own_loss", nullptr}, {"grey_loss", 1.0}}).kind, "learnt");
  // The last event counts: an untrained model may ignore its images.
  EXPECT_EQ(judge(event("images", 10, {{"own_loss", 2.0}, {"grey_loss", 2.0}}) +
                  steps(100, falls_and_settles) +
                  event("images", 100, {{"own_loss", 0.2}, {"grey_loss", 3.0}}))
                .kind,
            "learnt");
}

TEST(Verdict, NothingLearntOrNoClearProgress) {
  const Verdict flat = judge(steps(2000, [](int) { return 2.0; }));
  EXPECT_EQ(flat.kind, "nothing_learnt");
  EXPECT_EQ(flat.sentence,
            "Nothing learnt: the training loss was 2 at the start and 2 at the end.");
  EXPECT_EQ(
      judge(steps(100, falls_and_settles) + event("nothing_learnt", 100, Json::object())).kind,
      "nothing_learnt");
  const auto noisy = [](int step) { return step % 2 == 0 ? 2.8 : 1.2; };
  EXPECT_EQ(judge(steps(60, noisy)).kind, "unclear");
  EXPECT_EQ(judge(steps(60, noisy) + evals({{10, 2.0}, {60, 1.7}})).kind, "learnt");
}

/// Steps of a run on pairs, whose accuracy has 0.1 of scatter.
std::string pair_steps(int count, const Curve& loss, const Curve& accuracy, const Curve& margin) {
  std::string text;
  for (int step = 1; step <= count; ++step)
    text += Json({{"step", step},
                  {"loss", loss(step)},
                  {"reward_accuracy", accuracy(step) + (step % 2 == 0 ? 0.1 : -0.1)},
                  {"reward_margin", margin(step)},
                  {"rewards_chosen", -margin(step)},
                  {"rewards_rejected", -2 * margin(step)}})
                .dump() +
            "\n";
  return text;
}
std::string pair_eval(int step, double loss, double accuracy) {
  return event("eval", step,
               {{"eval_loss", loss},
                {"samples", 400},
                {"reward_accuracy", accuracy},
                {"reward_margin", 0.25}});
}

/// KTO has no accuracy: its verdict depends on the margin of the last steps. With 0.1 of scatter
/// the standard error of ten steps is 0.033.
TEST(Verdict, OfLabelsByTheMargin) {
  const auto run = [](double margin) {
    std::string text;
    for (int step = 1; step <= 100; ++step)
      text += Json({{"step", step},
                    {"loss", 0.5 - 0.002 * step},
                    {"reward_margin", margin + (step % 2 == 0 ? 0.1 : -0.1)},
                    {"kl", 0.0}})
                  .dump() +
              "\n";
    return text;
  };
  EXPECT_EQ(judge(run(0.5)).kind, "learnt");
  EXPECT_EQ(judge(run(0.5)).sentence, "Learnt: the reward margin is 0.5.");
  EXPECT_EQ(judge(run(0)).kind, "unclear");
  EXPECT_EQ(judge(run(0) + event("eval", 100, {{"eval_loss", 0.4}, {"samples", 400}})).kind,
            "unclear");
}

TEST(Verdict, OfPairsByAccuracyAndMargin) {
  const Curve falls = [](int step) { return 0.69 - 0.003 * step; },
              learns = [](int step) { return 0.5 + 0.002 * step; },
              guesses = [](int) { return 0.5; }, grows = [](int step) { return 0.005 * step; };
  const std::string run = pair_steps(100, falls, learns, grows);
  EXPECT_EQ(judge(run).kind, "learnt") << "a loss that still falls is none of a token";
  // Accuracy and margin of the last ten steps: 0.5 + 0.002 x 95.5 and 0.005 x 95.5.
  EXPECT_EQ(
      judge(run).sentence,
      "Learnt: the chosen answer has the higher reward in 69.1% of the training pairs, the reward "
      "margin is 0.477.");
  EXPECT_EQ(
      judge(run + pair_eval(100, 0.5, 0.71)).sentence,
      "Learnt: the chosen answer has the higher reward in 71% of the held-out pairs (69.1% in "
      "training), the reward margin is 0.25.");
  EXPECT_EQ(judge(run + event("images", 100, {{"own_loss", 2.0}, {"grey_loss", 2.0}})).kind,
            "learnt");
  const Verdict displaced = judge(run + event("likelihood_displacement", 100, Json::object()));
  EXPECT_EQ(displaced.kind, "displaced");
  EXPECT_TRUE(displaced.sentence.starts_with(
      "Both answers become less likely (likelihood displacement): the chosen reward went from "
      "-0.0275 to -0.477, the rejected one went from -0.055 to -0.955;"))
      << displaced.sentence;
  EXPECT_EQ(judge(run + event("accuracy_at_half", 100, Json::object())).kind, "at_half");
  // 0.5 / sqrt(400) is 0.025: 0.54 is within two errors of a guess, 0.56 is not.
  EXPECT_EQ(judge(run + pair_eval(100, 0.5, 0.54)).kind, "overfits");
  EXPECT_EQ(judge(run + pair_eval(100, 0.5, 0.56)).kind, "learnt");
  EXPECT_EQ(judge(run + pair_eval(50, 0.5, 0.72) + pair_eval(100, 0.6, 0.7)).kind, "overfits");
  EXPECT_EQ(judge(run + pair_eval(50, 0.5, 0.7) + pair_eval(100, 0.6, 0.72)).kind, "learnt")
      << "a loss that rises with its accuracy";
  const std::string guess = pair_steps(100, falls, guesses, grows);
  EXPECT_EQ(judge(guess).kind, "unclear");
  EXPECT_EQ(judge(guess + pair_eval(100, 0.5, 0.6)).kind, "learnt");
  EXPECT_EQ(judge(pair_steps(
                      100, [](int) { return 0.69; }, learns, grows))
                .kind,
            "nothing_learnt");
  EXPECT_EQ(judge(pair_steps(
                      100, [](int step) { return 0.69 + 0.01 * step; }, learns, grows))
                .kind,
            "diverged");
  EXPECT_EQ(judge(pair_steps(9, falls, learns, grows)).kind, "unjudged");
  EXPECT_EQ(
      judge(run, {.state = RunState::kRunning, .total_steps = 200}).sentence,
      "In progress, after step 100 of 200: the chosen answer has the higher reward in 69.1% of the "
      "training pairs, the reward margin is 0.477 so far.");
}

TEST(Verdict, DivergedKnownAndTooShort) {
  const Verdict diverged = judge(steps(100, [](int step) { return 1 + 0.05 * step; }));
  EXPECT_EQ(diverged.kind, "diverged");
  EXPECT_EQ(diverged.sentence, "Diverged: the training loss rose from 1.28 to 5.78.");
  EXPECT_EQ(judge(steps(100, [](int) { return 0.01; })).kind, "known");
  EXPECT_EQ(judge(steps(9, falls_to_the_end)).sentence, "Too short to judge: 9 steps.");
  EXPECT_EQ(judge("").kind, "unjudged");
  std::string skipped = steps(30, falls_to_the_end);
  for (int step = 31; step <= 60; ++step)
    skipped += Json({{"step", step}, {"loss", nullptr}}).dump() + "\n";
  EXPECT_EQ(judge(skipped).kind, "still_falling") << "losses that are not finite do not count";
}

TEST(Verdict, OfARunInProgressOnlyWhatIsAlreadyCertain) {
  const RunEnd running{.state = RunState::kRunning, .total_steps = 1000};
  EXPECT_EQ(judge("", running).sentence, "In progress, before step 1 of 1,000.");
  const Verdict verdict = judge(steps(100, falls_to_the_end), running);
  EXPECT_EQ(verdict.kind, "running");
  EXPECT_EQ(verdict.sentence,
            "In progress, after step 100 of 1,000: the training loss fell from 2.89 to 1.09 so "
            "far.");
  EXPECT_EQ(judge(steps(100, falls_and_settles) +
                      event("images", 10, {{"own_loss", 2.0}, {"grey_loss", 2.0}}),
                  running)
                .kind,
            "running");
  EXPECT_EQ(judge(steps(100, [](int step) { return 1 + 0.05 * step; }), running).kind, "diverged");
}

TEST(Verdict, StoppedAndFailed) {
  const RunEnd stopped{.state = RunState::kStopped, .total_steps = 400};
  EXPECT_EQ(judge(steps(100, falls_and_settles), stopped).sentence,
            "Stopped after step 100 of 400; --resume continues it. Learnt: the training loss fell "
            "from 1.4 to 0.2.");
  EXPECT_EQ(judge(steps(3, falls_to_the_end), stopped).sentence,
            "Stopped after step 3 of 400; --resume continues it.");
  const RunEnd failed{.state = RunState::kFailed, .total_steps = 400};
  const std::string run = steps(100, falls_to_the_end);
  EXPECT_EQ(judge(run + event("stopped", 101, {{"reason", "non-finite loss in bf16"}}), failed),
            (Verdict{"failed", "Failed after step 100 of 400: non-finite loss in bf16."}));
  EXPECT_EQ(judge(run, failed).sentence,
            "Failed after step 100 of 400: the reason was not recorded.");
  RunEnd told = failed;
  told.reason = "out of memory";
  EXPECT_EQ(judge(run, told).sentence, "Failed after step 100 of 400: out of memory.");
}

TEST(Verdict, TheBestFigureIsTheLowestLossOrTheHighestOfAMetric) {
  const auto best = [](const std::string& text, const std::string& figure) {
    return best_figure(read_metrics(text, "m"), figure);
  };
  const std::string run = steps(100, falls_to_the_end) +
                          event("eval", 50, {{"eval_loss", 0.41234}, {"exact_match", 0.5}}) +
                          event("eval", 100, {{"eval_loss", 0.5}, {"exact_match", 0.75}});
  EXPECT_EQ(best(run, ""), "held-out loss 0.4123 (step 50)");
  EXPECT_EQ(best(run, "exact_match"), "exact match 0.75 (step 100)");
  EXPECT_EQ(best(steps(100, falls_to_the_end), "").substr(0, 14), "training loss ");
  EXPECT_EQ(best("", ""), "");
}

}  // namespace
}  // namespace lft::verdict_test
