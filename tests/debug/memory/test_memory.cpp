// lft debug memory: the use of every block, the peak by use and module, planted leaks, the
// chart.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "models/base/call.h"
#include "src/debug/memory/memory.h"
#include "src/debug/memory/memory_page.h"
#include "src/io/files.h"
#include "support/counting_allocator.h"
#include "support/expect_error.h"
#include "train/tiny_run.h"

namespace lft::memory_test {
using namespace lft::debug;
using namespace lft::lora;
using namespace lft::recipe;
using namespace lft::train;
namespace {

int64_t bytes_of(const MemoryPicture& picture, MemoryUse use) {
  return picture.peak.by_use[static_cast<size_t>(use)];
}

class DebugMemory : public ::testing::Test {
 protected:
  MemoryReport run(Recipe recipe, const TrialHooks& hooks = {}, int64_t steps = 4) {
    recipe.data.eval.clear();
    printed_.clear();
    return debug_memory(recipe,
                        {.steps = steps,
                         .out = run_.dir().file("memory.html"),
                         .print = [this](const std::string& line) { printed_ += line + "\n"; },
                         .hooks = hooks});
  }

  const test::TinyRun run_;
  std::string printed_;
};

TEST_F(DebugMemory, CountsWhatStaysToTheByte) {
  int64_t frozen_bytes = 0, trainable_bytes = 0;
  const MemoryReport report =
      run(run_.recipe("count"), {.built = [&](lft::train::Run& built) {
            int64_t all = 0, trainables = 0;
            for (const at::Tensor& parameter : built.model.model->parameters())
              all += static_cast<int64_t>(parameter.nbytes());
            for (const Trainable& trainable : built.model.trainables)
              trainables += static_cast<int64_t>(trainable.tensor.nbytes());
            frozen_bytes = all - trainables;
            trainable_bytes = trainables;
          }});
  EXPECT_EQ(bytes_of(report.picture, MemoryUse::kTrainables), trainable_bytes);
  EXPECT_EQ(bytes_of(report.picture, MemoryUse::kMoments), 2 * trainable_bytes);
  EXPECT_GE(bytes_of(report.picture, MemoryUse::kFrozen), frozen_bytes);
  EXPECT_LE(bytes_of(report.picture, MemoryUse::kFrozen), frozen_bytes * 1.02 + 4096);
  EXPECT_GT(bytes_of(report.picture, MemoryUse::kActivations), 0);
  int64_t sum = 0;
  for (const int64_t bytes : report.picture.peak.by_use) sum += bytes;
  EXPECT_EQ(sum, report.picture.peak.bytes);
  EXPECT_EQ(report.steps.size(), 4u);
  EXPECT_TRUE(report.picture.leaks.empty()) << printed_;
  EXPECT_FALSE(std::filesystem::exists(run_.recipe("count").output_dir));
  for (const char* piece : {"peak       ", "frozen weights", "activations", "modules ",
                            "language_model.model.layers.", "leak       none", "picture    "}) {
    EXPECT_NE(printed_.find(piece), std::string::npos) << piece << " in\n" << printed_;
  }
}

/// The peak equals that of the same steps under a counting allocator.
TEST_F(DebugMemory, PeakIsTheAllocatorsOwn) {
  const test::CountingAllocator counting;
  const int64_t before = test::CountingAllocator::live();
  test::CountingAllocator::reset_peak();
  const MemoryReport report = run(run_.recipe("peak"));
  EXPECT_NEAR(static_cast<double>(report.picture.peak.bytes),
              static_cast<double>(test::CountingAllocator::peak() - before),
              0.01 * static_cast<double>(report.picture.peak.bytes));
}

TEST_F(DebugMemory, CheckpointingTakesActivationsAway) {
  const auto activations = [](const MemoryReport& report) {
    int64_t most = 0;
    for (const MemoryMoment& moment : report.picture.timeline) {
      most = std::max(most, moment.by_use[static_cast<size_t>(MemoryUse::kActivations)]);
    }
    return most;
  };
  Recipe block = run_.recipe("block");
  block.train.activation_checkpointing = "block";
  EXPECT_LT(activations(run(block)),
            0.7 * static_cast<double>(activations(run(run_.recipe("none")))));
}

TEST_F(DebugMemory, NamesAPlantedLeak) {
  std::vector<at::Tensor> kept;
  const auto keep = [&](int64_t, Optimizer& optimizer) {
    kept.push_back(optimizer.slots()[0].param.tensor.grad().clone());
  };
  const MemoryReport report = run(run_.recipe("leak"), {.gradients_ready = keep});
  ASSERT_EQ(report.picture.leaks.size(), 1u) << printed_;
  const std::string shape =
      "float [" + std::to_string(kept[0].size(0)) + ", " + std::to_string(kept[0].size(1)) + "]";
  EXPECT_EQ(report.picture.leaks[0].what, shape + " of aten::clone outside the model");
  EXPECT_EQ(report.picture.leaks[0].count, 3);  // from steps 2 to 4
  EXPECT_EQ(report.picture.leaks[0].bytes, 3 * static_cast<int64_t>(kept[0].nbytes()));
  EXPECT_NE(printed_.find("leak       every step leaves behind: 3 x " + shape), std::string::npos)
      << printed_;
  const ErrorInfo info = leak_error(report);
  EXPECT_EQ(info.where, report.page);
  EXPECT_TRUE(info.found.starts_with("3 x " + shape)) << info.found;
  EXPECT_FALSE(info.next.empty());
}

class Keeper : public CallObserver {
 public:
  void after(const std::string& path, const torch::nn::Module&,
             const std::vector<at::Tensor>& outputs) override {
    if (path == "language_model.model.layers.0.self_attn" && at::GradMode::is_enabled())
      kept.push_back(outputs[0]);
  }
  std::vector<at::Tensor> kept;  // with their graph
};

TEST_F(DebugMemory, NamesAGraphThatIsKept) {
  Keeper keeper;
  const ObserveCalls observe(keeper);
  const MemoryReport report = run(run_.recipe("graph"));
  ASSERT_FALSE(report.picture.leaks.empty());
  const auto named = [](const LeakGroup& leak) {
    return leak.what.find("language_model.model.layers.0.self_attn") != std::string::npos;
  };
  EXPECT_TRUE(std::any_of(report.picture.leaks.begin(), report.picture.leaks.end(), named))
      << printed_;
}

TEST_F(DebugMemory, OutOfMemoryIsTheTrainersError) {
  const test::CountingAllocator counting;
  const auto limit = [](int64_t step, Optimizer&) {
    if (step == 1)
      test::CountingAllocator::limit(test::CountingAllocator::live() + 60000);  // room for a batch
  };
  EXPECT_LFT_ERROR(ErrorKind::kResource, "step 2, forward pass of ",
                   run(run_.recipe("limit"), {.gradients_ready = limit}));
  test::CountingAllocator::limit(INT64_MAX);
}

TEST_F(DebugMemory, PageStandsAlone) {
  const MemoryReport report = run(run_.recipe("page"));
  const std::string page = test::slurp(report.page);
  for (const char* piece :
       {"<svg", "<polygon", "peak ", "step 4", "Peak by module", "default-src 'none'"}) {
    EXPECT_NE(page.find(piece), std::string::npos) << piece;
  }
  for (const char* never : {"<script", "http:", "https:", "src="})
    EXPECT_EQ(page.find(never), std::string::npos) << never;
}

TEST(MemoryParts, UseFollowsFromTime) {
  // Hand-made events: a step of 0 to 12 whose gradients exist from 8 on.
  const auto entry = [](int64_t born, int64_t died, const char* module, bool backward,
                        int64_t bytes) {
    return LedgerEntry{
        .block = nullptr,
        .bytes = bytes,
        .born = born,
        .died = died,
        .phase = {},
        .place = {.module = module, .node = backward ? "Node" : "", .backward = backward},
        .op = {},
        .op_run = 0,
        .shape = {}};
  };
  const std::vector<LedgerEntry> entries = {entry(0, 11, "", false, 1),  entry(1, 6, "a", false, 2),
                                            entry(2, 3, "a", false, 4),  entry(4, 10, "a", true, 8),
                                            entry(5, 7, "a", true, 16),  entry(8, 9, "", false, 32),
                                            entry(12, -1, "", false, 64)};
  const std::vector<StepMarks> steps = {{.begin = 0, .gradients_ready = 8, .end = 12}};
  const std::vector<MemoryUse> uses = classify(entries, {}, steps);
  EXPECT_EQ(uses, (std::vector<MemoryUse>{MemoryUse::kBatch, MemoryUse::kActivations,
                                          MemoryUse::kWorkspace, MemoryUse::kGradients,
                                          MemoryUse::kWorkspace, MemoryUse::kWorkspace,
                                          MemoryUse::kOther}));
  const MemoryPicture drawn = picture(entries, uses, steps);
  EXPECT_EQ(drawn.peak.bytes, 1 + 8 + 32);
  EXPECT_EQ(drawn.peak.event, 8);
  EXPECT_EQ(drawn.modules[0].name, "outside the model");
  EXPECT_EQ(drawn.modules[0].bytes, 32);
  EXPECT_EQ(picture(entries, uses, steps, 3).timeline.size(), 3u);
}

TEST(MemoryParts, PageEscapes) {
  MemoryPicture drawn;
  drawn.peak.bytes = 10;
  drawn.timeline = {drawn.peak};
  drawn.modules = {{.name = "<b>&", .bytes = 10, .blocks = 1}};
  const std::string page =
      memory_page("<i>", "\"<u>\"", drawn, {{.begin = 0, .gradients_ready = 1, .end = 2}});
  EXPECT_EQ(page.find("<i>"), std::string::npos);
  EXPECT_EQ(page.find("<u>"), std::string::npos);
  EXPECT_NE(page.find("&lt;b&gt;&amp;"), std::string::npos);
}

}  // namespace
}  // namespace lft::memory_test
