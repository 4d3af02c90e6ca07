// Requirements on every rule of optim.name from the optimizer, the recipe and the memory plan.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string_view>

#include "src/recipe/recipe_fields.h"
#include "src/train/optim/optimizer.h"
#include "src/train/optim/rules.h"
#include "support/expect_error.h"

namespace lft::rules_test {
using namespace lft::lora;
using namespace lft::ops;
using namespace lft::recipe;
using namespace lft::train;
namespace {

/// A visitor of the recipe's fields that collects the values of optim.name.
struct Choices {
  std::string section_name;
  std::vector<std::string> names = {};
  template <class T, class Help>
  void field(std::string_view key, const T&, const FieldRule& rule, const Help&) {
    if (section_name == "optim" && key == "name") names = rule.choices;
  }
  template <class Body>
  void section(std::string_view key, const Body& body) {
    section_name = key;
    body();
  }
};

TEST(UpdateRules, AreThoseThatTheRecipeNames) {
  Choices choices;
  const Recipe recipe;
  visit(choices, recipe);
  std::vector<std::string> names;
  for (const RuleInfo& rule : update_rules()) names.push_back(rule.name);
  EXPECT_EQ(choices.names, names);
  EXPECT_EQ(find_rule(recipe.optim.name).name, "adamw");
  EXPECT_LFT_ERROR(ErrorKind::kInternal, "there is no optimizer of this name", find_rule("sgd"));
}

at::Tensor drawn(at::IntArrayRef shape, uint64_t seed) {
  return at::randn(shape, at::detail::createCPUGenerator(seed));
}

/// Below and at the minimum size of codes; matrices of both orientations and of one row; a tensor
/// of several chunks with a partial end. Each but the last has a low-precision copy.
std::vector<Trainable> trained() {
  std::vector<Trainable> list;
  const std::vector<std::vector<int64_t>> shapes = {{4095},   {4096}, {64, 65},
                                                    {80, 52}, {1, 7}, {2 * kChunk + 301}};
  for (size_t i = 0; i < shapes.size(); ++i) {
    at::Tensor master = drawn(shapes[i], i).requires_grad_();
    list.push_back({"layer" + std::to_string(i), "llm", master,
                    i + 1 < shapes.size() ? c10::make_intrusive<Shadow>(master, 1.7) : nullptr});
  }
  return list;
}

class Rules : public ::testing::TestWithParam<std::string> {
 protected:
  static RulePtr rule() {
    return find_rule(GetParam()).make({.betas = {0.9, 0.99}, .eps = 1e-6, .weight_decay = 0.1});
  }
  static Optimizer make(const std::vector<Trainable>& list, MomentStorage storage = {}) {
    return Optimizer(list, param_groups(list, 0.01, -1), rule(), storage);
  }
  /// Step `number`, clipped; `absent` has no gradient, and that of `bad` is infinite at one
  /// element.
  static void take(Optimizer& optimizer, uint64_t number, int64_t absent = -1, int64_t bad = -1) {
    for (size_t i = 0; i < optimizer.slots().size(); ++i) {
      const at::Tensor& param = optimizer.slots()[i].param.tensor;
      const auto slot = static_cast<int64_t>(i);
      param.mutable_grad() =
          slot == absent ? at::Tensor() : drawn(param.sizes(), 1000 * number + i);
      if (slot == bad) param.mutable_grad().view(-1)[3] = std::numeric_limits<float>::infinity();
    }
    const GradVerdict verdict = check_gradients(optimizer.gradients(), 1, 1, {});
    optimizer.step(0.5, verdict);
    optimizer.commit(!read_stats(verdict).found_inf);
  }
  static std::vector<at::Tensor> state_of(const Slot& slot) {
    std::vector<at::Tensor> tensors = {slot.param.tensor.detach().clone(),
                                       at::full({}, slot.steps)};
    for (const NamedMoment& moment : slot.moments) tensors.push_back(moment.tensor.clone());
    return tensors;
  }
  static bool same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
      return x.nbytes() == y.nbytes() &&
             std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
    });
  }
};

TEST_P(Rules, ANonFiniteStepMovesNothing) {
  Optimizer optimizer = make(trained());
  take(optimizer, 1);
  std::vector<std::vector<at::Tensor>> before;
  for (const Slot& slot : optimizer.slots()) before.push_back(state_of(slot));
  take(optimizer, 2, /*absent=*/-1, /*bad=*/2);
  for (size_t i = 0; i < before.size(); ++i)
    EXPECT_TRUE(same(state_of(optimizer.slots()[i]), before[i])) << i;
  take(optimizer, 3);
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_FALSE(at::equal(optimizer.slots()[i].param.tensor, before[i][0])) << i;
    EXPECT_EQ(optimizer.slots()[i].steps, 2) << i;
  }
}

TEST_P(Rules, AnAbsentGradientKeepsWeightMomentsAndCount) {
  Optimizer optimizer = make(trained());
  take(optimizer, 1);
  const std::vector<at::Tensor> before = state_of(optimizer.slots()[3]),
                                other = state_of(optimizer.slots()[2]);
  take(optimizer, 2, /*absent=*/3);
  EXPECT_TRUE(same(state_of(optimizer.slots()[3]), before));
  EXPECT_FALSE(same(state_of(optimizer.slots()[2]), other));
}

/// A group without decay is updated like one of a rule whose weight_decay is 0, next to groups with
/// decay.
TEST_P(Rules, AGroupMayBeLeftOutOfTheDecay) {
  const auto groups = [](bool decays) {
    std::vector<ParamGroup> both = {{"base", 0.01, {0, 2, 4}}, {"base B bias", 0.01, {1, 3, 5}}};
    both[1].decays = decays;
    return both;
  };
  const std::vector<Trainable> list = trained(), without = trained(), with = trained();
  Optimizer mixed(list, groups(false), rule()), decaying(with, groups(true), rule()),
      plain(without, groups(true), find_rule(GetParam()).make({.betas = {0.9, 0.99}, .eps = 1e-6}));
  for (uint64_t number = 1; number <= 2; ++number) {
    for (Optimizer* optimizer : {&mixed, &decaying, &plain}) take(*optimizer, number);
  }
  for (size_t i = 0; i < list.size(); ++i) {
    const Optimizer &same_as = i % 2 == 0 ? decaying : plain,
                    &other = i % 2 == 0 ? plain : decaying;
    EXPECT_TRUE(same(state_of(mixed.slots()[i]), state_of(same_as.slots()[i]))) << i;
    EXPECT_FALSE(at::equal(list[i].tensor, other.slots()[i].param.tensor)) << i;
  }
}

TEST_P(Rules, ThePlanCountsTheBytesThatASlotKeeps) {
  const Optimizer optimizer = make(trained());
  for (const Slot& slot : optimizer.slots()) {
    size_t bytes = 0;
    for (const NamedMoment& moment : slot.moments) bytes += moment.tensor.nbytes();
    EXPECT_EQ(moment_bytes(*rule(), slot.param.tensor.sizes()), static_cast<double>(bytes));
    EXPECT_GT(bytes, 0u);
  }
}

TEST_P(Rules, ShadowsFollowTheirMasters) {
  const std::vector<Trainable> list = trained();
  Optimizer optimizer = make(list);
  optimizer.refresh_copies(at::kBFloat16);
  const auto expect_fresh = [&](const char* when) {
    for (const Trainable& each : list) {
      if (!each.shadow) continue;
      const at::Tensor copy = each.shadow->kept(at::kBFloat16);
      ASSERT_TRUE(copy.defined()) << when << " " << each.name;
      EXPECT_TRUE(at::equal(copy, (each.tensor.detach() * 1.7).to(at::kBFloat16)))
          << when << " " << each.name;
    }
  };
  const at::Tensor first = list[2].shadow->kept(at::kBFloat16).clone();
  take(optimizer, 1, /*absent=*/1);
  expect_fresh("updated");
  EXPECT_FALSE(at::equal(list[2].shadow->kept(at::kBFloat16), first));
  take(optimizer, 2, /*absent=*/1, /*bad=*/0);
  expect_fresh("not updated");
}

TEST_P(Rules, PiecesGiveTheSameBitsOrAreRefused) {
  recipe::Recipe::Optim optim{.name = GetParam(), .offload = true};
  if (!rule()->in_pieces()) {
    EXPECT_LFT_ERROR(ErrorKind::kUsage, "optim.name " + GetParam(), make_rule(optim));
    optim.offload = false;
    EXPECT_NE(make_rule(optim), nullptr);
    return;
  }
  Optimizer whole = make(trained()), pieces = make(trained(), {.offload = true, .piece = kChunk});
  for (uint64_t step = 1; step <= 3; ++step) {
    take(whole, step, /*absent=*/step == 2 ? 1 : -1);
    take(pieces, step, /*absent=*/step == 2 ? 1 : -1);
  }
  for (size_t i = 0; i < whole.slots().size(); ++i)
    EXPECT_TRUE(same(state_of(pieces.slots()[i]), state_of(whole.slots()[i]))) << i;
}

TEST_P(Rules, TheDirectionIsOfTheSizeOfTheStep) {
  Optimizer optimizer = make(trained());
  std::vector<at::Tensor> before;
  for (const Slot& slot : optimizer.slots()) before.push_back(slot.param.tensor.detach().clone());
  take(optimizer, 1);
  for (size_t i = 0; i < before.size(); ++i) {
    const Slot& slot = optimizer.slots()[i];
    constexpr double kLr = 0.01 * 0.5, kDecay = 0.1;
    const at::Tensor step =
        (before[i] * (1 - kLr * kDecay) - slot.param.tensor.detach()).abs() / kLr;
    const double said = optimizer.rule().direction(slot).norm().item<double>();
    EXPECT_NEAR(step.norm().item<double>(), said, 0.3 * said) << i;
  }
}

std::vector<std::string> rule_names() {
  std::vector<std::string> names;
  for (const RuleInfo& rule : update_rules()) names.push_back(rule.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, Rules, ::testing::ValuesIn(rule_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace lft::rules_test
