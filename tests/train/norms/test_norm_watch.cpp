// Trends of norms: planted ones are reported, at the right time and with their numbers; healthy
// runs of every kind give no warning.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "src/train/norms/norm_watch.h"

namespace lft::norm_watch_test {
using namespace lft::io;
using namespace lft::train;
namespace {

constexpr const char* kModules[] = {
    "language_model.model.layers.0.self_attn.q_proj", "language_model.model.layers.0.mlp.down_proj",
    "language_model.model.layers.1.self_attn.q_proj", "multi_modal_projector.linear_1"};

/// A run whose gradient has the magnitude a softmax loss allows, r (1 - exp(-loss)), scattered by a
/// factor exp(+-noise).
class FakeRun {
 public:
  explicit FakeRun(double noise, uint32_t seed = 1) : noise_(noise), generator_(seed) {}

  /// Module m has `factor[m]` times its usual share.
  std::vector<NormWarning> step(double loss, double r = 3,
                                std::array<double, 4> factor = {1, 1, 1, 1}, bool image = true) {
    StepNorms norms{.step = ++step_, .loss = loss * std::exp(0.1 * draw()), .modules = {}};
    double squares = 0;
    for (size_t m = 0; m < (image ? 4 : 3); ++m) {
      norms.modules.push_back({kModules[m], factor[m] * 0.5 * r * -std::expm1(-norms.loss) *
                                                std::exp(noise_ * draw())});
      squares += norms.modules.back().value * norms.modules.back().value;
    }
    norms.norm = std::sqrt(squares);
    std::vector<NormWarning> warnings = watch.step(norms);
    for (const NormWarning& warning : warnings) kinds.push_back(warning.kind);
    return warnings;
  }

  NormWatch watch;
  std::vector<std::string> kinds;

 private:
  double draw() { return std::sqrt(-2 * std::log(uniform())) * std::cos(2 * M_PI * uniform()); }
  double uniform() { return (generator_() + 0.5) / 4294967296.0; }
  double noise_;
  int64_t step_ = 0;
  std::mt19937 generator_;
};

TEST(NormWatch, HealthyRunsHaveNoWarning) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    for (const double noise : {0.3, 0.7, 1.0}) {
      FakeRun learns(noise, seed), plateau(noise, seed), overfits(noise, seed),
          warms_up(noise, seed), converges(noise, seed);
      for (int step = 0; step < 1500; ++step) {
        const double spike =
            step % 50 == 49 ? 100 : 1;  // one batch in fifty is a hundred times as hard
        learns.step(0.5 + 3.5 * std::exp(-step / 100.0), 3 * spike);
        plateau.step(1.0);
        overfits.step(4 * std::exp(-step / 60.0), 3 + step / 100.0);  // down to 6e-11
        converges.step(1.5, std::max(3 * std::exp(-step / 25.0),
                                     1e-4));  // to its minimum, without scatter between batches
        warms_up.step(3 - std::min(step / 100.0, 1.5), 0.5 + std::min(step / 50.0, 4.5));
      }
      for (const FakeRun* run : {&learns, &plateau, &overfits, &warms_up, &converges}) {
        EXPECT_EQ(run->kinds, std::vector<std::string>()) << "seed " << seed << ", noise " << noise;
      }
    }
  }
}

TEST(NormWatch, AGradientThatIsExactlyZeroBehindAConvergedLossIsNoCollapse) {
  FakeRun run(0.3);
  for (int step = 0; step < 100; ++step) run.step(2 * std::exp(-step / 8.0));
  for (int step = 0; step < 50; ++step) run.step(0, 0);
  EXPECT_EQ(run.kinds, std::vector<std::string>());
}

TEST(NormWatch, ASpikeOfSevenStepsIsNotATrend) {
  FakeRun run(0.3);
  for (int step = 0; step < 200; ++step)
    run.step(step >= 100 && step < 107 ? 20 : 1, step >= 100 && step < 107 ? 5000 : 3);
  EXPECT_EQ(run.kinds, std::vector<std::string>());
}

TEST(NormWatch, DivergenceIsNamedOnceWithNumbersAndModules) {
  for (uint32_t seed = 1; seed <= 10; ++seed) {
    FakeRun run(0.4, seed);
    for (int step = 0; step < 200; ++step) run.step(1 + 2 * std::exp(-step / 30.0));
    std::vector<NormWarning> found;
    int64_t when = 0;
    for (int step = 1; step <= 120; ++step) {
      // The loss climbs by 2 % a step, the gradient by 6 %, that of one module by 10 %.
      const std::vector<NormWarning> warnings =
          run.step(std::pow(1.02, step), 3 * std::pow(1.06, step), {1, 1, std::pow(1.04, step), 1});
      for (const NormWarning& warning : warnings) {
        if (warning.kind != "divergence") continue;
        found.push_back(warning);
        when = step;
      }
    }
    ASSERT_EQ(found.size(), 1u);
    // 1.06^39 is 10, twice the loss at 36, and a median of 16 is 8 steps late.
    EXPECT_GE(when, 30);
    EXPECT_LE(when, 65);
    EXPECT_EQ(found[0].modules.front(), kModules[2]);
    EXPECT_GE(found[0].now, 10 * found[0].before);
    EXPECT_GE(found[0].loss, 1.5 * found[0].loss_before);
    EXPECT_NE(found[0].what.find("divergence in progress"), std::string::npos);
    EXPECT_NE(found[0].next.find("optim.lr"), std::string::npos);
  }
}

TEST(NormWatch, AThousandfoldNormIsNamedThoughTheLossFalls) {
  FakeRun run(0.3);
  for (int step = 0; step < 40; ++step) run.step(2);
  for (int step = 0; step < 40; ++step) run.step(1, 20000);
  EXPECT_EQ(run.kinds, std::vector<std::string>{"gradient_blow_up"});

  FakeRun one(0.3);  // a module that began at almost nothing and is now as large as the others
  for (int step = 0; step < 40; ++step) one.step(2, 3, {1, 1e-5, 1, 1});
  for (int step = 0; step < 40; ++step) one.step(1);
  EXPECT_EQ(one.kinds, std::vector<std::string>{"gradient_blow_up"});
}

// Loss and gradient norm of the first steps of the digits recipe at 500 times its learning rate:
// the weights end where the gradient is a 300th, and digits are guessed (ln 10 is 2.3).
constexpr double kFarTooHot[][2] = {
    {3.83, 6.1},    {4.17, 6.44},   {5.48, 58.3},   {4.99, 4.33},   {6.75, 0.565},  {3.34, 0.199},
    {2.11, 0.0451}, {2.47, 0.0748}, {2.26, 0.059},  {2.11, 0.0305}, {1.99, 0.0219}, {2.06, 0.0397},
    {2.03, 0.0313}, {1.92, 0.017},  {1.96, 0.0128}, {1.97, 0.0221}, {1.97, 0.0218}, {1.95, 0.0188},
    {1.93, 0.0163}, {1.88, 0.0183}, {1.92, 0.0196}, {1.87, 0.0143}, {1.92, 0.0159}, {1.94, 0.0214},
    {1.87, 0.0173}, {1.89, 0.0131}, {1.97, 0.0318}, {1.9, 0.0186},  {1.86, 0.0173}, {1.9, 0.0195}};

TEST(NormWatch, AModelThrownOutByItsLearningRateHasStoppedLearning) {
  NormWatch watch;
  std::vector<NormWarning> all;
  int64_t step = 0, when = 0;
  for (const auto& [loss, norm] : kFarTooHot) {
    for (NormWarning& warning :
         watch.step({.step = ++step, .loss = loss, .norm = norm, .modules = {}})) {
      all.push_back(warning);
      when = step;
    }
  }
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].kind, "gradient_collapse");
  EXPECT_NEAR(all[0].before, std::sqrt(6.1 * 6.44),
              0.01);  // the median of the first four logarithms
  EXPECT_LT(all[0].now, 0.07);
  EXPECT_GE(when, 16);
  EXPECT_LE(when, 24);
  EXPECT_NE(all[0].what.find("has stopped learning"), std::string::npos);
}

TEST(NormWatch, AModuleThatStopsIsNamedAloneAndOneThatTheDataDoesNotReachIsNot) {
  FakeRun run(0.3);
  std::vector<NormWarning> found;
  for (int step = 0; step < 200; ++step) {
    const bool image = step % 10 == 0;  // the projector has a gradient in one step of ten
    for (const NormWarning& warning : run.step(1.5, 3, {1, step < 100 ? 1.0 : 0.0, 1, 1}, image))
      found.push_back(warning);
  }
  ASSERT_EQ(run.kinds, std::vector<std::string>{"module_collapse"});
  EXPECT_EQ(found[0].modules, std::vector<std::string>{kModules[1]});
  EXPECT_NE(warning_line(found[0], 120).find("step 120"), std::string::npos);
  EXPECT_NE(warning_line(found[0], 120).find(kModules[1]), std::string::npos);
}

TEST(NormWatch, ActivationsAreHeldAgainstTheirFirstRecord) {
  const std::string deep = "language_model.model.layers.1", first = "language_model.model.layers.0";
  NormWatch grows, spikes, dies, moves;
  std::vector<NormWarning> grown, died;
  const double growth[] = {1, 2, 150, 90, 120, 400};  // two in a row beyond 100
  for (const double factor : growth) {
    for (const NormWarning& warning : grows.activations({{first, 2}, {deep, 3 * factor}}))
      grown.push_back(warning);
  }
  ASSERT_EQ(grown.size(), 1u);
  EXPECT_EQ(grown[0].kind, "activation_blow_up");
  EXPECT_EQ(grown[0].modules, std::vector<std::string>{deep});
  EXPECT_EQ(grown[0].now, 1200);
  EXPECT_EQ(grown[0].before, 3);
  for (const double factor : {1.0, 500.0, 1.0, 500.0, 1.0})
    EXPECT_TRUE(spikes.activations({{first, 2}, {deep, factor}}).empty());
  for (const double factor : {1.0, 5.0, 20.0, 30.0, 0.1, 0.05})
    EXPECT_TRUE(moves.activations({{first, 2}, {deep, factor}}).empty());
  for (const double factor : {1.0, 0.1, 0.001, 0.0}) {
    for (const NormWarning& warning : dies.activations({{first, 2}, {deep, factor}}))
      died.push_back(warning);
  }
  ASSERT_EQ(died.size(), 1u);
  EXPECT_EQ(died[0].kind, "activation_collapse");
}

TEST(NormWatch, ALowerBoundHoldsForActivationsWhileTheLossRises) {
  FakeRun run(0.2);
  for (int step = 0; step < 50; ++step) run.step(1);
  EXPECT_TRUE(run.watch.activations({{"multi_modal_projector", 1}}).empty());
  for (int step = 0; step < 50; ++step) run.step(3, 4);  // too little for a separate warning
  EXPECT_TRUE(run.watch.activations({{"multi_modal_projector", 15}}).empty());
  const std::vector<NormWarning> found = run.watch.activations({{"multi_modal_projector", 20}});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, "activation_blow_up");
  EXPECT_EQ(run.kinds, std::vector<std::string>());
}

TEST(NormWatch, GoesOnFromItsStateAtAnyStep) {
  const auto drive = [](NormWatch& watch, int step) {
    const bool late = step > 40;
    StepNorms norms{.step = step,
                    .loss = late ? std::pow(1.03, step - 40) : 1.0,
                    .norm = late ? std::pow(1.2, step - 40) : 1.0,
                    .modules = {}};
    norms.modules = {{kModules[0], 0.6 * norms.norm},
                     {kModules[1], step > 60 ? 0 : 0.8 * norms.norm}};
    std::string said;
    for (const NormWarning& warning : watch.step(norms)) said += warning_line(warning, step);
    if (step % 10 == 0) {
      for (const NormWarning& warning : watch.activations({{"a", std::pow(1.2, step)}}))
        said += warning_line(warning, step);
    }
    return said;
  };
  std::vector<std::string> said;
  std::vector<Json> states;
  NormWatch whole;
  for (int step = 1; step <= 100; ++step) {
    said.push_back(drive(whole, step));
    states.push_back(whole.state());
  }
  EXPECT_GE(std::count_if(said.begin(), said.end(),
                          [](const std::string& text) { return !text.empty(); }),
            3);
  for (size_t stop = 0; stop < states.size(); stop += 9) {
    NormWatch resumed;
    resumed.restore(Json::parse(states[stop].dump()));  // as stored in a checkpoint
    for (size_t step = stop + 1; step < said.size(); ++step)
      EXPECT_EQ(drive(resumed, static_cast<int>(step + 1)), said[step]);
    EXPECT_EQ(resumed.state(), states.back());
  }
  NormWatch fresh;
  fresh.restore(Json::object());
  EXPECT_EQ(fresh.state(), NormWatch().state());
}

}  // namespace
}  // namespace lft::norm_watch_test
