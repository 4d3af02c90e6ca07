// The micro-batch of the trainability check, and the check of A once B has changed.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "models/loss_sum.h"
#include "src/data/batch.h"
#include "src/train/inputs/run_inputs.h"
#include "src/train/proof/adapter_watch.h"
#include "src/train/proof/proof_probe.h"
#include "src/train/run/run.h"
#include "support/counting_allocator.h"
#include "train/pass_sizes.h"
#include "train/proof_fixture.h"
#include "train/tiny_run.h"

namespace lft::proof_probe_test {
using namespace lft::test;
namespace {

/// Rows of a LLaVA file in the order given: 'i' image and answer, 't' text and answer, 'x' text cut
/// before its answer, 'y' the same with an image before it.
std::string write_rows(const test::TinyRun& run, const std::string& kinds) {
  nlohmann::json rows = nlohmann::json::array();
  for (size_t i = 0; i < kinds.size(); ++i) {
    const bool image = kinds[i] == 'i' || kinds[i] == 'y', cut = kinds[i] == 'x' || kinds[i] == 'y';
    const std::string question = (image ? "<image>\n" : "") + std::string(cut ? 400 : 5, 'q');
    nlohmann::json row = {
        {"id", std::string(1, kinds[i]) + std::to_string(i)},
        {"conversations",
         {{{"from", "human"}, {"value", question}}, {{"from", "gpt"}, {"value", "red"}}}}};
    if (image) row["image"] = "red0.bmp";
    rows.push_back(row);
  }
  return run.dir().write("rows-" + kinds + ".json", rows.dump());
}

class FindProbe : public ::testing::Test {
 protected:
  Recipe recipe(const std::string& kinds) {
    Recipe recipe = run_.recipe("out");
    recipe.data.train = write_rows(run_, kinds);
    recipe.data.eval.clear();
    recipe.data.max_tokens = 100;
    recipe.data.shuffle = false;
    recipe.train.batch_size = 2;
    recipe.train.grad_accum = 2;
    return recipe;
  }
  /// Joined ids of the probe for trainables of these scopes.
  static std::string find(const Recipe& recipe, const std::vector<std::string>& scopes) {
    const RunInputs inputs = open_inputs(recipe);
    std::vector<Trainable> trainables;
    for (const std::string& scope : scopes) trainables.push_back({scope, scope, at::Tensor()});
    std::string ids;
    for (const Sample& sample : find_probe(inputs, trainables).samples)
      ids += (ids.empty() ? "" : " ") + sample.id;
    return ids;
  }
  test::TinyRun run_{3};
};

TEST_F(FindProbe, TheFirstMicroBatchThatCanTeachWhatIsTrained) {
  EXPECT_EQ(find(recipe("xxtxii"), {"llm"}), "t2 x3");
  EXPECT_EQ(find(recipe("xxtxii"), {"llm", "projector"}), "i4 i5");
  EXPECT_EQ(find(recipe("xyxtyttt"), {"llm"}), "x2 t3");
  EXPECT_EQ(find(recipe("ytxyttxi"), {"vision"}),
            "x6 i7");  // an image whose sample has no supervised token teaches nothing
  EXPECT_EQ(find(recipe("xxxxi"), {"llm"}), "i4");  // the short last one
}

TEST_F(FindProbe, IsABatchOfTheTrainingOrder) {
  Recipe shuffled = recipe("iiiiiiiiiiii");
  shuffled.data.shuffle = true;
  const RunInputs inputs = open_inputs(shuffled);
  std::string first;
  const StepSamples step = start_loader(inputs, 0)->next();
  for (const Sample& sample : step.micro.at(0)) first += (first.empty() ? "" : " ") + sample.id;
  EXPECT_EQ(find(shuffled, {"llm"}), first);
  EXPECT_NE(first, "i0 i1");
}

TEST_F(FindProbe, NoSupervisedTokenAnywhere) {
  const Recipe cut = recipe("xyxyx");
  EXPECT_LFT_ERROR(ErrorKind::kInput, "no sample has a supervised token", find(cut, {"llm"}));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "5 samples: 0 with a supervised token, 2 with an image",
                   find(cut, {"llm", "projector"}));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "data.max_tokens = 100", find(cut, {"llm"}));
}

TEST_F(FindProbe, NoImageForWhatLearnsFromImages) {
  EXPECT_EQ(find(recipe("ttt"), {"llm"}), "t0 t1");
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "the projector and the vision",
                   find(recipe("ttt"), {"llm", "vision", "projector"}));
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "3 rows, none with an image",
                   find(recipe("ttt"), {"projector"}));
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "none with an image before a supervised token",
                   find(recipe("tyt"), {"projector"}));
}

TEST_F(FindProbe, BadSamplesAreLeftOutOrStopAsInTraining) {
  Recipe bad = recipe("iiii");
  nlohmann::json rows = nlohmann::json::parse(test::slurp(bad.data.train.path));
  for (int i = 0; i < 3; ++i) rows[i]["image"] = "none.bmp";
  bad.data.train = run_.dir().write("bad.json", rows.dump());
  EXPECT_LFT_ERROR(ErrorKind::kInput, "none.bmp", find(bad, {"projector"}));
  bad.data.on_bad_sample = "skip";
  EXPECT_EQ(find(bad, {"projector"}), "i3");
}

/// Rows of mixed lengths, one of them ten times as long as the others: padded, the micro-batch of
/// the probe would exceed several budgets.
Recipe mixed_lengths(const test::TinyRun& run, const std::string& out, int64_t budget) {
  nlohmann::json rows = nlohmann::json::parse(test::slurp(run.dir().file("rows.json")));
  rows[2]["conversations"][1]["value"] = std::string(300, 'a');
  Recipe recipe = run.recipe(out);
  recipe.data.train = run.dir().write("mixed.json", rows.dump());
  recipe.data.eval.clear();
  recipe.data.max_tokens = 400;
  recipe.data.shuffle = false;
  recipe.train.batch_size = 8;
  recipe.train.max_tokens_per_step = budget;
  return recipe;
}

test::PassSizes passes_of_the_proof(const Recipe& recipe) {
  lft::train::Run run = make_run(open_inputs(recipe));
  test::PassSizes sizes;
  const ObserveCalls observe(sizes);
  TrainabilityReport proof = check_trainable(run.model.model, run.model.trainables,
                                             {&run.optimizer}, run.model.excluded, run.probe);
  prove_second_step(run.model.model, run.model.trainables, run.probe, proof);
  return sizes;
}

TEST(ProofPasses, ArePackedWhereTheRecipePacks) {
  const test::TinyRun run;
  constexpr int64_t kBudget = 450;
  const test::PassSizes packed = passes_of_the_proof(mixed_lengths(run, "packed", kBudget));
  EXPECT_EQ(packed.passes, 2);
  EXPECT_LE(packed.largest, kBudget);
  EXPECT_GT(packed.largest, kBudget / 2);  // more than a single sample
  EXPECT_GT(passes_of_the_proof(mixed_lengths(run, "padded", 0)).largest, 5 * kBudget);
}

/// Norms of float32 gradients summed in another order, of at most 8 x 450 terms:
/// within 60 units of 2^-24, which is 4e-6.
TEST(ProofPasses, FindTheGradientsThatPaddedOnesFind) {
  const test::TinyRun tiny;
  lft::train::Run run = make_run(open_inputs(mixed_lengths(tiny, "out", 450)));
  std::vector<at::Tensor> tensors;
  for (const Trainable& trainable : run.model.trainables) tensors.push_back(trainable.tensor);
  Probe padded = run.probe;
  padded.packed = false;
  const ProbeGradients want = probe_gradients(run.model.model, tensors, padded),
                       got = probe_gradients(run.model.model, tensors, run.probe);
  EXPECT_NEAR(got.loss, want.loss, 4e-6 * want.loss);
  EXPECT_EQ(got.reached, want.reached);
  double largest = 0;
  for (const double norm : want.norms) largest = std::max(largest, norm);
  for (size_t i = 0; i < want.norms.size(); ++i)
    EXPECT_NEAR(got.norms[i], want.norms[i], 4e-6 * largest) << i;
}

/// A run in 16 bits has no room for float32 activations: the final check keeps only
/// the input of each block.
TEST(ProofPasses, InFp32KeepNoActivationsOfABlock) {
  const test::TinyRun tiny;
  lft::train::Run run = make_run(open_inputs(mixed_lengths(tiny, "out", 450)));
  std::vector<at::Tensor> tensors;
  for (const Trainable& trainable : run.model.trainables) tensors.push_back(trainable.tensor);
  const test::CountingAllocator counting;
  const auto peak_of = [&](const Probe& probe) {
    const int64_t before = test::CountingAllocator::live();
    test::CountingAllocator::reset_peak();
    probe_gradients(run.model.model, tensors, probe);
    return test::CountingAllocator::peak() - before;
  };
  Probe kept = in_fp32(run.probe);
  kept.recompute = 0;
  EXPECT_LT(peak_of(in_fp32(run.probe)),
            0.8 * static_cast<double>(peak_of(kept)));  // two blocks, one at a time
}

class Watch : public test::ProofFixture {
 protected:
  Watch() { adapt({"llm:q_proj"}, {"projector"}); }
  /// Norms by slot: B of the adapters as given, A as given, the projector's 1.
  std::vector<double> norms(double a0, double b0, double a1, double b1) const {
    std::vector<double> result;
    for (const Slot& slot : optimizer->slots()) {
      const bool a = slot.param.name.ends_with("lora_A.weight"),
                 b = slot.param.name.ends_with("lora_B.weight");
      const bool first = slot.param.name.find("layers.0.") != std::string::npos;
      result.push_back(a ? (first ? a0 : a1) : b ? (first ? b0 : b1) : 1.0);
    }
    return result;
  }
};

TEST_F(Watch, ARealUpdateGivesEveryAAGradient) {
  AdapterWatch watch;
  for (int step = 0; step < 2; ++step) {
    EXPECT_FALSE(watch.satisfied());
    optimizer->drop_gradients();
    test::loss_sum(model, collate(probe.samples, probe.encode, at::kCPU)).backward();
    const GradVerdict verdict = check_gradients(optimizer->gradients(), 1, 0, at::Tensor());
    optimizer->step(1, verdict);
    const GradStats stats = read_stats(verdict);
    optimizer->commit(true);
    watch.step(*optimizer, stats.norms, 1, at::kFloat);
  }
  EXPECT_TRUE(watch.satisfied());
}

TEST_F(Watch, AZeroAIsDeadOnceBHasMoved) {
  AdapterWatch watch;
  watch.step(*optimizer, norms(0, 1, 0, 1), /*factor=*/0,
             at::kFloat);  // warm-up: the learning rate is 0
  watch.step(*optimizer, norms(0, 1, 0, 1), 0.5,
             at::kFloat);  // A is correctly 0, and now B changes
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "layers.1.self_attn.q_proj",
                   watch.step(*optimizer, norms(1, 1, 0, 1), 1, at::kFloat));
}

TEST_F(Watch, AnAdapterThatNoBatchReachedIsJudgedLater) {
  AdapterWatch watch;
  watch.step(*optimizer, norms(0, 1, 0, 0), 1, at::kFloat);
  watch.step(*optimizer, norms(1, 1, 0, 0), 1, at::kFloat);
  watch.step(*optimizer, norms(1, 1, 0, 1), 1, at::kFloat);  // B of this adapter changes here first
  EXPECT_FALSE(watch.satisfied());
  AdapterWatch other = watch;
  watch.step(*optimizer, norms(0, 1, 1e-30, 1), 1, at::kFloat);
  EXPECT_TRUE(watch.satisfied());
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "layers.1.self_attn.q_proj",
                   other.step(*optimizer, norms(1, 1, 0, 1), 1, at::kFloat));
}

TEST_F(Watch, UnderFp16BMustBeLargeEnoughToCount) {
  AdapterWatch watch;  // learning rate 1e-2 * factor
  for (int step = 0; step < 6; ++step) watch.step(*optimizer, norms(0, 1, 0, 1), 1e-3, at::kHalf);
  EXPECT_LFT_ERROR(
      ErrorKind::kUsage, "does not learn", for (int step = 0; step < 2; ++step) {
        watch.step(*optimizer, norms(0, 1, 0, 1), 1e-3, at::kHalf);
      });
}

TEST_F(Watch, SatisfiedStaysSatisfied) {
  AdapterWatch watch(/*satisfied=*/true);
  for (int step = 0; step < 3; ++step) watch.step(*optimizer, norms(0, 1, 0, 1), 1, at::kFloat);
  EXPECT_TRUE(watch.satisfied());
  adapt({}, {"projector"});
  AdapterWatch without_adapters;
  without_adapters.step(*optimizer, std::vector<double>(optimizer->slots().size(), 1.0), 1,
                        at::kFloat);
  EXPECT_TRUE(without_adapters.satisfied());
}

}  // namespace
}  // namespace lft::proof_probe_test
