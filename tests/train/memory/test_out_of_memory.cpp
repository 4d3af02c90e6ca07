// Out of memory: one error with the amount, the place, and whether the cause is size
// or growth.
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "models/base/call.h"
#include "src/train/memory/out_of_memory.h"
#include "src/train/run/rehearsal.h"
#include "src/train/run/trainer.h"
#include "support/counting_allocator.h"
#include "support/expect_error.h"
#include "train/run_files.h"

namespace lft::out_of_memory_test {
using namespace lft::io;
using namespace lft::recipe;
using namespace lft::train;
namespace {

using test::CountingAllocator;

class OutOfMemory : public ::testing::Test {
 protected:
  ~OutOfMemory() override { CountingAllocator::limit(std::numeric_limits<int64_t>::max()); }
  Recipe recipe(const std::string& out) const {
    Recipe recipe = run_.recipe(out);
    recipe.data.eval.clear();
    recipe.train.max_steps = 20;
    return recipe;
  }
  static std::string error_of(const Recipe& recipe, const TrainOptions& options = {}) {
    const std::string text = test::thrown_text(
        ErrorKind::kResource, [&] { train::train(recipe, options); }, __FILE__, __LINE__);
    CountingAllocator::limit(std::numeric_limits<int64_t>::max());
    return text;
  }

  const test::TinyRun run_;
  const CountingAllocator counting_;
};

/// On a GPU: the out-of-memory messages of its libraries and of a kernel launch; other machine
/// errors with the same exit status are not.
TEST(OutOfMemoryOfADevice, IsWhatItsLibrariesSay) {
  const auto torch = [](const char* text) { return c10::Error({"f", "file", 1}, text); };
  EXPECT_TRUE(is_out_of_memory(torch("CUDA out of memory. Tried to allocate 2.00 GiB")));
  EXPECT_TRUE(is_out_of_memory(torch("CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate")));
  EXPECT_TRUE(is_out_of_memory(torch("cuDNN error: CUDNN_STATUS_ALLOC_FAILED")));
  EXPECT_FALSE(is_out_of_memory(torch("CUDA error: an illegal memory access was encountered")));
  const auto own = [](const char* where, ErrorKind kind) {
    return Error(
        kind,
        {.what = "rope launch failed", .where = where, .found = {}, .expected = {}, .next = {}});
  };
  EXPECT_TRUE(is_out_of_memory(own("CUDA", ErrorKind::kResource)));
  EXPECT_FALSE(is_out_of_memory(own("CUDA", ErrorKind::kInternal)));
  EXPECT_FALSE(is_out_of_memory(own("rank 1 on a machine", ErrorKind::kResource)));
}

/// Under every limit between nothing and enough the error names the failing module, in both
/// passes.
TEST_F(OutOfMemory, NamesTheModuleInBothPasses) {
  lft::train::Run run = make_run(open_inputs(recipe("modules")));
  std::set<std::string> modules;
  for (const auto& module : run.model.model->named_modules("", /*include_self=*/true))
    modules.insert(module.key());
  MemoryWatch watch(at::kCPU);
  std::set<std::string> forward, backward;
  // Returns whether this much was enough.
  const auto rehearsed = [&](int64_t room) {
    watch.new_step();
    CountingAllocator::limit(CountingAllocator::live() + room);
    bool fits = true;
    try {
      rehearse_worst(run, run_step_options(run), watch, /*proved=*/false);
    } catch (const std::exception& error) {
      fits = false;
      EXPECT_TRUE(is_out_of_memory(error)) << error.what();
    }
    CountingAllocator::limit(std::numeric_limits<int64_t>::max());
    return fits;
  };
  for (const int64_t recompute : {0, 1}) {  // recomputed blocks need memory in the backward pass
    run.state.recompute = recompute;
    for (int64_t room = 2000; !rehearsed(room); room += room / 30) {
      ASSERT_TRUE(watch.failed().has_value());
      const FailedAllocation failed = *watch.failed();
      EXPECT_GT(failed.bytes, 0);
      EXPECT_GT(failed.free, 0);
      EXPECT_LE(failed.live, failed.peak);
      EXPECT_EQ(failed.place.backward, !failed.place.node.empty());
      if (failed.place.module.empty()) continue;  // the batch, or a node of the loss
      EXPECT_TRUE(modules.contains(failed.place.module)) << failed.place.module;
      (failed.place.backward ? backward : forward).insert(failed.place.module);
    }
  }
  EXPECT_GE(forward.size(), 5u);
  EXPECT_GE(backward.size(), 1u);
  EXPECT_FALSE(watch.failed().has_value());
}

TEST_F(OutOfMemory, InAStepSaysSizeWhereNothingGrew) {
  const auto at_third = [](int64_t step, Optimizer&) {
    if (step == 3) CountingAllocator::limit(CountingAllocator::live() + 60000);  // room for a batch
  };
  const std::string text = error_of(recipe("size"), {.gradients_ready = at_third});
  EXPECT_EQ(text.rfind("error: out of memory on cpu: ", 0), 0u) << text;
  for (const char* piece :
       {" asked for, ", " free", "step 4, forward pass of ", "samples row", "tensors held ",
        "at most ", "3 steps were done before and nothing has grown"}) {
    EXPECT_NE(text.find(piece), std::string::npos) << piece << " in\n" << text;
  }
}

TEST_F(OutOfMemory, WhileTheModelIsBuilt) {
  CountingAllocator::limit(CountingAllocator::live() + 50000);
  const std::string text = error_of(recipe("build"));
  EXPECT_NE(text.find("building the model"), std::string::npos) << text;
  EXPECT_NE(text.find("next: "), std::string::npos) << text;
  EXPECT_NE(text.find(" saves "), std::string::npos) << text;
  EXPECT_NE(text.find("a matter of size"), std::string::npos) << text;
}

TEST_F(OutOfMemory, NamesALeakOfAHook) {
  std::vector<at::Tensor> kept;
  const auto leak = [&](int64_t step, Optimizer& optimizer) {
    const at::Tensor& gradient = optimizer.slots()[0].param.tensor.grad();
    kept.push_back(gradient.clone());
    if (step == 12) CountingAllocator::limit(CountingAllocator::live() + 20000);
  };
  const std::string shape = "x float [";
  const std::string text = error_of(recipe("hook"), {.gradients_ready = leak});
  EXPECT_NE(text.find("what outlives a step grew in each of the last 11 steps"), std::string::npos)
      << text;
  EXPECT_NE(text.find(shape + std::to_string(kept[0].size(0)) + ", " +
                      std::to_string(kept[0].size(1)) + "] of aten::clone outside the model"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("lft debug memory"), std::string::npos) << text;
  ASSERT_EQ(test::events(recipe("hook").output_dir, "memory_grows").size(),
            1u);  // reported before it ran out
}

/// Keeps a layer's output, like a hook that logs activations.
class Keeper : public CallObserver {
 public:
  void after(const std::string& path, const torch::nn::Module&,
             const std::vector<at::Tensor>& outputs) override {
    if (path == "language_model.model.layers.0.mlp" && at::GradMode::is_enabled())
      kept.push_back(outputs[0].detach().clone());
  }
  std::vector<at::Tensor> kept;
};

TEST_F(OutOfMemory, NamesALeakInAModule) {
  Keeper keeper;
  const ObserveCalls observe(keeper);
  ASSERT_EQ(train::train(recipe("module")), 0);
  const std::vector<Json> grows = test::events(recipe("module").output_dir, "memory_grows");
  ASSERT_EQ(grows.size(), 1u);
  const std::string what = grows[0]["what"];
  EXPECT_NE(what.find(" of aten::clone in language_model.model.layers.0.mlp (forward)"),
            std::string::npos)
      << what;
}

TEST_F(OutOfMemory, AHealthyRunDoesNotGrow) {
  Recipe healthy = recipe("healthy");
  healthy.train.grad_accum = 2;
  healthy.train.eval_every_steps = 5;
  healthy.data.eval = healthy.data.train.path;
  healthy.log.layer_activation_norms_every = 3;
  healthy.log.layer_grad_norms_every = 2;
  ASSERT_EQ(train::train(healthy), 0);
  EXPECT_TRUE(test::events(healthy.output_dir, "memory_grows").empty());
}

}  // namespace
}  // namespace lft::out_of_memory_test
