// Adam's moments in 8 bits and in host memory: which tensors, the same updates, the state after a
// skipped step, and a run that learns.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "models/ops/update/adamw8.h"
#include "src/train/optim/adamw.h"
#include "src/train/optim/adamw8bit.h"
#include "src/train/optim/optimizer.h"
#include "src/train/run/trainer.h"
#include "support/expect_error.h"
#include "train/names.h"
#include "train/run_files.h"
#include "train/tiny_run.h"

namespace lft::small_optimizers_test {
using namespace lft::test;
namespace {

at::Tensor normal(at::IntArrayRef shape, uint64_t seed) {
  return at::randn(shape, at::detail::createCPUGenerator(seed));
}

/// Below, at and above the minimum size of codes; several chunks with a partial end; a matrix.
std::vector<Trainable> trainables() {
  std::vector<Trainable> list;
  const std::vector<std::vector<int64_t>> shapes = {
      {4095}, {4096}, {64, 65}, {3}, {2 * kChunk + 301}, {kChunk}};
  for (size_t i = 0; i < shapes.size(); ++i) {
    list.push_back({"layer" + std::to_string(i), i == 2 ? "projector" : "llm",
                    normal(shapes[i], i).requires_grad_()});
  }
  return list;
}

struct Kept {
  bool eight_bits = false, offload = false;
  int64_t piece = 512 * kChunk;
};

Optimizer make(const std::vector<Trainable>& list, const Kept& kept) {
  const RuleOptions options{.betas = {0.9, 0.99}, .eps = 1e-6, .weight_decay = 0.1};
  return Optimizer(list, param_groups(list, 0.01, 0.002),
                   kept.eight_bits ? make_adamw8bit(options) : make_adamw(options),
                   {.offload = kept.offload, .piece = kept.piece});
}

/// Step `number` with its own gradients: one is absent in step 2, one infinite in step 3.
void take(Optimizer& optimizer, int64_t number) {
  for (size_t i = 0; i < optimizer.slots().size(); ++i) {
    const at::Tensor& param = optimizer.slots()[i].param.tensor;
    const at::Tensor gradient =
        normal(param.sizes(), 1000 * number + i) * std::pow(10.0, -static_cast<double>(i));
    param.mutable_grad() = number == 2 && i == 1 ? at::Tensor() : gradient.to(param.device());
  }
  if (number == 3)
    optimizer.slots()[4].param.tensor.mutable_grad()[7] = std::numeric_limits<float>::infinity();
  const GradVerdict verdict = check_gradients(optimizer.gradients(), 1, 1, {});
  optimizer.step(1.0 / static_cast<double>(number), verdict);
  optimizer.commit(!read_stats(verdict).found_inf);
}

std::vector<at::Tensor> everything(const Optimizer& optimizer) {
  std::vector<at::Tensor> tensors;
  for (const Slot& slot : optimizer.slots()) {
    tensors.push_back(slot.param.tensor.detach().clone());
    tensors.push_back(at::full({}, slot.steps));
    for (const auto& [name, tensor] : moment_tensors(slot)) tensors.push_back(tensor.clone());
  }
  return tensors;
}

void expect_same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].scalar_type(), b[i].scalar_type()) << i;
    ASSERT_EQ(a[i].nbytes(), b[i].nbytes()) << i;
    EXPECT_EQ(std::memcmp(a[i].const_data_ptr(), b[i].const_data_ptr(), a[i].nbytes()), 0) << i;
  }
}

/// transformers and PEFT register nn.Embedding with bitsandbytes' GlobalOptimManager as 32 bits.
TEST(Moments8Bit, AnEmbeddingKeepsItsMomentsInFloat32AndMovesAsUnderAdamW) {
  std::vector<Trainable> narrow_list = trainables(), wide_list = trainables();
  for (Trainable& each : narrow_list) each.embedding = true;
  Optimizer narrow = make(narrow_list, {.eight_bits = true}), wide = make(wide_list, {});
  for (int64_t number = 1; number <= 3; ++number) {
    take(narrow, number);
    take(wide, number);
  }
  for (size_t i = 0; i < narrow.slots().size(); ++i) {
    ASSERT_EQ(narrow.slots()[i].moments.size(), 2u);
    EXPECT_EQ(narrow.slots()[i].moments[0].tensor.scalar_type(), at::kFloat);
    EXPECT_TRUE(at::equal(narrow.slots()[i].param.tensor, wide.slots()[i].param.tensor)) << i;
  }
}

TEST(Moments8Bit, FromAnotherSizeOnAndByName) {
  const Optimizer optimizer = make(trainables(), {.eight_bits = true});
  const bool narrow[] = {false, true, true, false, true, true};
  for (size_t i = 0; i < 6; ++i) {
    const Slot& slot = optimizer.slots()[i];
    ASSERT_EQ(slot.moment("exp_avg_absmax").defined(), narrow[i]) << i;
    EXPECT_EQ(slot.moment("exp_avg").sizes(), slot.param.tensor.sizes());
    EXPECT_EQ(slot.moment("exp_avg_sq").scalar_type(), narrow[i] ? at::kByte : at::kFloat);
  }
  const Slot& ragged = optimizer.slots()[4];
  EXPECT_EQ(ragged.moment("exp_avg_absmax").numel(), (2 * kChunk + 301 + 255) / 256);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : moment_tensors(ragged)) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"exp_avg.layer4", "exp_avg_sq.layer4",
                                             "exp_avg_absmax.layer4", "exp_avg_sq_absmax.layer4"}));
  EXPECT_EQ(moment_tensors(optimizer.slots()[0]).size(), 2u);
  const Optimizer wide = make(trainables(), {});
  for (const Slot& slot : wide.slots()) EXPECT_FALSE(slot.moment("exp_avg_absmax").defined());
}

TEST(Moments8Bit, StepByStepTheUpdatesAreTheOps) {
  Optimizer optimizer = make(trainables(), {.eight_bits = true});
  std::vector<at::Tensor> params;
  for (const Slot& slot : optimizer.slots()) params.push_back(slot.param.tensor.detach().clone());
  std::vector<AdamWTensor> wide;
  std::vector<AdamW8Tensor> narrow;
  for (const size_t i : {0, 3})
    wide.push_back({params[i], {}, at::zeros_like(params[i]), at::zeros_like(params[i]), 0, 0});
  for (const size_t i : {1, 2, 4, 5}) {
    const at::Tensor codes = at::zeros(params[i].sizes(), at::kByte),
                     absmax = at::zeros({moment_blocks(params[i].numel())});
    narrow.push_back({params[i], {}, codes, codes.clone(), absmax, absmax.clone(), 0, 0});
  }
  for (int64_t step = 1; step <= 4;
       step += step == 1 ? 3 : 1) {  // 1 and 4: every gradient is there, and finite
    take(optimizer, step);
    const GradVerdict verdict = check_gradients(optimizer.gradients(), 1, 1, {});
    for (size_t k = 0; k < wide.size(); ++k) {
      const Slot& slot = optimizer.slots()[k == 0 ? 0 : 3];
      wide[k].grad = slot.param.tensor.grad();
      wide[k].lr = 0.01 / static_cast<double>(step);
      wide[k].t = slot.steps;
    }
    const size_t slots[] = {1, 2, 4, 5};
    for (size_t k = 0; k < narrow.size(); ++k) {
      const Slot& slot = optimizer.slots()[slots[k]];
      narrow[k].grad = slot.param.tensor.grad();
      narrow[k].lr = (slots[k] == 2 ? 0.002 : 0.01) / static_cast<double>(step);
      narrow[k].t = slot.steps;
    }
    const AdamWOptions options{.betas = {0.9, 0.99}, .eps = 1e-6, .weight_decay = 0.1};
    adamw_(wide, options, verdict);
    adamw8_(narrow, options, verdict);
    for (size_t i = 0; i < params.size(); ++i)
      EXPECT_TRUE(at::equal(optimizer.slots()[i].param.tensor, params[i])) << step << " " << i;
    EXPECT_TRUE(at::equal(optimizer.slots()[4].moment("exp_avg"), narrow[2].exp_avg));
  }
}

TEST(Moments8Bit, ANonFiniteVerdictLeavesEveryBitAndTheCount) {
  for (const bool offload : {false, true}) {
    Optimizer optimizer =
        make(trainables(), {.eight_bits = true, .offload = offload, .piece = kChunk});
    take(optimizer, 1);
    const std::vector<at::Tensor> before = everything(optimizer);
    const at::Tensor codes = optimizer.slots()[4].moment("exp_avg").clone();
    take(optimizer, 3);
    expect_same(everything(optimizer), before);
    take(optimizer, 4);
    EXPECT_EQ(optimizer.slots()[4].steps, 2);
    EXPECT_FALSE(at::equal(optimizer.slots()[4].moment("exp_avg"), codes));
  }
}

TEST(Moments8Bit, DecodeToAboutTheMomentsOfAdamWAndAreForgotten) {
  Optimizer narrow = make(trainables(), {.eight_bits = true}), wide = make(trainables(), {});
  take(narrow, 1);
  take(wide, 1);
  for (size_t i = 0; i < 6; ++i) {
    const AdamMoments got = adam_moments(narrow.slots()[i]), want = adam_moments(wide.slots()[i]);
    ASSERT_EQ(got.exp_avg.sizes(), want.exp_avg.sizes());
    // Half the widest gap of a code, 0.9 / 64 and 0.9 / 128, times the largest of all blocks.
    EXPECT_LE((got.exp_avg - want.exp_avg).abs().max().item<double>(),
              want.exp_avg.abs().max().item<double>() * 0.9 / 64 / 2 * 1.00001);
    EXPECT_LE((got.exp_avg_sq - want.exp_avg_sq).abs().max().item<double>(),
              want.exp_avg_sq.max().item<double>() * 0.9 / 128 / 2 * 1.00001);
    forget_moments(narrow.slots()[i]);
    EXPECT_EQ(adam_moments(narrow.slots()[i]).exp_avg.abs().max().item<double>(), 0);
    EXPECT_EQ(narrow.slots()[i].steps, 0);
  }
}

class Offload : public ::testing::TestWithParam<at::DeviceType> {
 protected:
  void SetUp() override {
    if (GetParam() == at::kCUDA && !at::globalContext().hasCUDA()) GTEST_SKIP() << "no GPU";
  }
  static std::vector<Trainable> there() {
    std::vector<Trainable> list = trainables();
    for (Trainable& each : list) each.tensor = each.tensor.detach().to(GetParam()).requires_grad_();
    return list;
  }
};

TEST_P(Offload, InPiecesOfAnySizeGivesTheSameBits) {
  for (const bool eight_bits : {false, true}) {
    Optimizer plain = make(there(), {.eight_bits = eight_bits});
    for (int64_t step = 1; step <= 4; ++step) take(plain, step);
    std::vector<at::Tensor> wanted = everything(plain);
    for (at::Tensor& tensor : wanted) tensor = tensor.cpu();
    for (const int64_t piece : {kChunk, 2 * kChunk, 512 * kChunk}) {
      Optimizer offloaded =
          make(there(), {.eight_bits = eight_bits, .offload = true, .piece = piece});
      for (const Slot& slot : offloaded.slots()) {
        for (const auto& [name, tensor] : moment_tensors(slot)) {
          EXPECT_TRUE(tensor.is_cpu());
          EXPECT_EQ(tensor.is_pinned(), GetParam() == at::kCUDA);
        }
      }
      const auto version = offloaded.slots()[4].param.tensor._version();
      for (int64_t step = 1; step <= 4; ++step) take(offloaded, step);
      EXPECT_GT(offloaded.slots()[4].param.tensor._version(), version);  // autograd sees the update
      std::vector<at::Tensor> got = everything(offloaded);
      for (at::Tensor& tensor : got) tensor = tensor.cpu();
      expect_same(got, wanted);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, Offload, ::testing::Values(at::kCPU, at::kCUDA),
                         [](const auto& info) {
                           return std::string(info.param == at::kCPU ? "cpu" : "gpu");
                         });

class SmallRun : public ::testing::Test {
 protected:
  /// Losses of a run of 40 steps that fully trains the language model; its embeddings and head have
  /// 8,448 elements.
  std::vector<double> losses(const std::string& out, const std::string& name, double lr) {
    Recipe recipe = run_.recipe(out);
    recipe.data.eval.clear();
    recipe.full = {"llm"};
    recipe.lora.targets = {"projector:all-linear"};
    recipe.optim.name = name;
    recipe.optim.lr = lr;
    recipe.train.max_steps = 40;
    recipe.checkpoint.every_steps = 40;
    EXPECT_EQ(train::train(recipe), 0);
    std::vector<double> out_losses;
    for (const Json& line : test::step_lines(recipe.output_dir))
      out_losses.push_back(line.at("loss").get<double>());
    return out_losses;
  }
  test::TinyRun run_{12};
};

double tail(const std::vector<double>& losses) {
  double sum = 0;
  for (size_t i = losses.size() - 6; i < losses.size(); ++i) sum += losses[i] / 6;  // two epochs
  return sum;
}

/// In the two upper decades a code has an error of at most 14% of a first moment and 7% of a
/// second, which changes the step like a learning rate off by up to 0.14 + 0.07 / 2; its effect
/// on the loss is bounded by runs at such rates.
TEST_F(SmallRun, LearnsWithin8BitsWhatItLearnsWithout) {
  constexpr double kLr = 2e-3, kError = 0.175;
  const std::vector<double> wide = losses("wide", "adamw", kLr),
                            narrow = losses("narrow", "adamw8bit", kLr);
  ASSERT_EQ(wide.size(), 40u);
  ASSERT_EQ(narrow.size(), 40u);
  EXPECT_EQ(narrow[0], wide[0]);  // before any update
  const double slow = tail(losses("slow", "adamw", kLr * (1 - kError))),
               fast = tail(losses("fast", "adamw", kLr * (1 + kError)));
  EXPECT_LT(tail(wide), 0.5 * wide[0]);
  EXPECT_LE(std::abs(tail(narrow) - tail(wide)),
            std::max(std::abs(slow - tail(wide)), std::abs(fast - tail(wide))));
}

TEST_F(SmallRun, OffloadOnACpuIsANotice) {
  Recipe recipe = run_.recipe("out");
  recipe.optim.offload = true;
  recipe.train.activation_checkpointing = "block";
  recipe.train.activation_offload = true;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(train::train(recipe), 0);
  const std::string said = ::testing::internal::GetCapturedStderr();
  if (at::globalContext().hasCUDA()) return;
  EXPECT_NE(said.find("optim.offload: on a CPU the moments are in host memory already"),
            std::string::npos)
      << said;
  EXPECT_NE(said.find("train.activation_offload: on a CPU activations are in host memory already"),
            std::string::npos)
      << said;
}

TEST_F(SmallRun, ActivationOffloadNeedsRecomputedBlocks) {
  Recipe recipe = run_.recipe("out");
  recipe.train.activation_offload = true;
  const std::string text = dump_recipe(recipe);
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "needs train.activation_checkpointing other than none",
                   parse_recipe(text, "recipe.yaml"));
  recipe.train.activation_checkpointing = "every-2";
  EXPECT_TRUE(parse_recipe(dump_recipe(recipe), "recipe.yaml").train.activation_offload);
}

}  // namespace
}  // namespace lft::small_optimizers_test
