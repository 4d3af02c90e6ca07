// A run resumed from a checkpoint equals an uninterrupted run, bit for bit; and checkpoints that
// cannot be resumed are refused.
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "models/family/model.h"
#include "src/base/text.h"
#include "src/checkpoint/checkpoint.h"
#include "src/train/inputs/output_dir.h"
#include "src/train/run/trainer.h"
#include "support/expect_error.h"
#include "train/copy_killed.h"
#include "train/run_files.h"
#include "train/tiny_run.h"

namespace lft::resume_test {
using namespace lft::checkpoint;
using namespace lft::io;
using namespace lft::family;
using namespace lft::llava;
using namespace lft::recipe;
using namespace lft::train;
namespace {

namespace fs = std::filesystem;
using test::events;
using test::run_bytes;
using test::slurp;

struct Case {
  std::string name, precision = "fp32", schedule = "cosine";
  int64_t bad_step =
      0;  // a gradient is infinite there: skipped under FP16, recovered from under BF16
  std::string optimizer = "adamw", variant = "lora";
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class Resume : public ::testing::TestWithParam<Case> {};

/// Dropout, accumulation over two micro-batches, epochs of 2 steps (8 + 2 rows), a checkpoint
/// after every step.
Recipe resumable(const test::TinyRun& run, const std::string& out, const Case& c) {
  Recipe recipe = run.recipe(out);
  recipe.data.eval.clear();
  recipe.lora.dropout = 0.25;
  recipe.lora.variant = c.variant;
  recipe.optim.name = c.optimizer;
  if (c.optimizer == "adamw8bit") {  // embeddings and head have 8,448 elements: codes; the other
                                     // tensors fewer than 4,096: FP32
    recipe.full = {"llm"};
    recipe.lora.targets = {"projector:all-linear"};
    recipe.optim.lr = 1e-3;
  }
  recipe.optim.schedule = c.schedule;
  recipe.optim.weight_decay = 0.01;
  recipe.precision.compute = c.precision;
  recipe.precision.loss_scale.init = 1024;  // far from an overflow itself
  recipe.precision.loss_scale.growth_interval = 2;
  recipe.train.grad_accum = 2;
  recipe.train.max_steps = 6;
  recipe.checkpoint = {.every_steps = 1, .keep = 100, .at_step_zero = true};
  return recipe;
}

TrainOptions options_of(const Case& c, bool resume) {
  TrainOptions options{.resume = resume};
  if (c.bad_step > 0) {
    options.gradients_ready = [bad = c.bad_step](int64_t step, Optimizer& optimizer) {
      if (step == bad)
        optimizer.slots().back().param.tensor.mutable_grad().fill_(
            std::numeric_limits<float>::infinity());
    };
  }
  return options;
}

TEST_P(Resume, FromEveryStepIsTheRunThatWasNeverStopped) {
  const test::TinyRun run(/*rows=*/10);
  const Recipe whole = resumable(run, "whole", GetParam());
  ASSERT_EQ(train::train(whole, options_of(GetParam(), false)), 0);
  const test::RunBytes expected = run_bytes(whole.output_dir, 6);
  ASSERT_FALSE(expected.adapter.empty());
  ASSERT_FALSE(expected.moments.empty());
  ASSERT_EQ(expected.moments.find("exp_avg_sq_absmax.") != std::string::npos,
            GetParam().optimizer == "adamw8bit");
  const std::string event = GetParam().precision == "bf16" ? "fp32_recovery" : "step_skipped";
  ASSERT_EQ(events(whole.output_dir, event).size(), GetParam().bad_step > 0 ? 1u : 0u);
  for (int64_t step = 0; step <= 6; ++step) {
    Recipe resumed = resumable(run, "resumed" + std::to_string(step), GetParam());
    test::copy_killed(whole.output_dir, resumed.output_dir, step);
    resumed.data.workers = 1 + step % 3;
    ASSERT_EQ(train::train(resumed, options_of(GetParam(), true)), 0) << step;
    const test::RunBytes got = run_bytes(resumed.output_dir, 6);
    EXPECT_EQ(got.adapter, expected.adapter) << step;
    EXPECT_EQ(got.weights, expected.weights) << step;
    EXPECT_EQ(got.moments, expected.moments) << step;
    EXPECT_EQ(got.losses, expected.losses) << step;
    EXPECT_EQ(events(resumed.output_dir, "resume").size(), 1u) << step;
    EXPECT_EQ(events(resumed.output_dir, event).size(), events(whole.output_dir, event).size())
        << step;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Matrix, Resume,
    ::testing::Values(Case{"fp32_cosine"}, Case{"fp32_constant", "fp32", "constant"},
                      Case{"bf16_cosine", "bf16"}, Case{"bf16_linear", "bf16", "linear"},
                      Case{"fp16_cosine", "fp16"},
                      Case{"fp16_constant_skipped", "fp16", "constant", 3},
                      Case{"bf16_cosine_recovered", "bf16", "cosine", 3},
                      Case{"adamw8bit", "fp32", "cosine", 0, "adamw8bit"},
                      Case{"adamw8bit_fp16_skipped", "fp16", "constant", 3, "adamw8bit"},
                      Case{"adamw8bit_bf16_recovered", "bf16", "cosine", 3, "adamw8bit"},
                      Case{"lion", "fp32", "cosine", 0, "lion"},
                      Case{"lion_fp16_skipped", "fp16", "constant", 3, "lion"},
                      Case{"muon", "fp32", "cosine", 0, "muon"},
                      Case{"muon_bf16_recovered", "bf16", "cosine", 3, "muon"},
                      Case{"dora_bf16_recovered", "bf16", "cosine", 3, "adamw", "dora"},
                      Case{"pissa_fp32", "fp32", "cosine", 0, "adamw", "pissa"},
                      Case{"pissa_bf16_recovered", "bf16", "cosine", 3, "adamw", "pissa"}),
    [](const auto& info) { return info.param.name; });

class ResumeGuards : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(train::train(recipe_), 0); }
  int resume(const Recipe& recipe) { return train::train(recipe, {.resume = true}); }
  static Recipe first(const test::TinyRun& run) {
    Recipe recipe = resumable(run, "out", {"", "fp32", "cosine", 0});
    recipe.train.max_steps = 3;
    return recipe;
  }

  const test::TinyRun run_{10};
  Recipe recipe_ = first(run_);
};

TEST_F(ResumeGuards, AFinishedRunOnlyRewritesItsProducts) {
  const test::RunBytes before = run_bytes(recipe_.output_dir, 3);
  fs::remove_all(recipe_.output_dir + "/adapter");
  fs::remove(recipe_.output_dir + "/report.html");
  EXPECT_EQ(resume(recipe_), 0);
  EXPECT_EQ(run_bytes(recipe_.output_dir, 3), before);
  EXPECT_TRUE(fs::exists(recipe_.output_dir + "/report.html"));
}

TEST_F(ResumeGuards, MoreStepsMayBeAskedFor) {
  recipe_.train.max_steps = 5;
  EXPECT_EQ(resume(recipe_), 0);
  EXPECT_EQ(test::step_lines(recipe_.output_dir).size(), 5u);
}

/// Includes the rates that metrics.jsonl records for the two steps.
TEST_F(ResumeGuards, AnEndThatMovesSaysWhatBecomesOfTheLearningRate) {
  const auto said = [&] {
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(resume(recipe_), 0);
    return ::testing::internal::GetCapturedStderr();
  };
  const auto rate = [&](size_t step) {
    return format_number(test::step_lines(recipe_.output_dir)[step - 1]["lr"].get<double>());
  };
  EXPECT_EQ(said().find("the run now ends"), std::string::npos);
  recipe_.train.max_steps = 8;
  const std::string longer = said();
  EXPECT_NE(longer.find("the run now ends after step 8 instead of 3: under optim.schedule: cosine "
                        "the learning rate goes from " +
                        rate(3) + " in step 3 to " + rate(4) + " in step 4"),
            std::string::npos)
      << longer;
  recipe_.train.max_steps = 5;
  const std::string shorter = said();
  EXPECT_NE(shorter.find("the run now ends after step 5 instead of 8, and step 8 is trained "
                         "already: no step is left to train"),
            std::string::npos)
      << shorter;
  EXPECT_EQ(test::step_lines(recipe_.output_dir).size(), 8u);
  recipe_ = resumable(run_, "constant", {.name = "constant", .schedule = "constant"});
  recipe_.train.max_steps = 2;
  ASSERT_EQ(train::train(recipe_), 0);
  recipe_.train.max_steps = 3;
  EXPECT_EQ(said().find("the run now ends"), std::string::npos) << "no rate changes";
}

TEST_F(ResumeGuards, ChangedFieldsAreRefusedByName) {
  Recipe changed = recipe_;
  changed.optim.lr = 1e-3;
  changed.lora.dropout = 0;
  changed.log.every_steps = 9;  // may change
  EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, "optim.lr", resume(changed));
  EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, "lora.dropout", resume(changed));
  changed = recipe_;
  changed.optim.name = "adamw8bit";
  EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, "optim.name", resume(changed));
  changed = recipe_;
  changed.log.every_steps = 9;
  changed.checkpoint.keep = 1;
  changed.data.workers = 3;
  changed.optim.offload = true;
  EXPECT_EQ(resume(changed), 0);
}

TEST_F(ResumeGuards, TheImagesMayLieElsewhereAndMoreMayBeRecomputed) {
  Recipe whole = recipe_, moved = recipe_;
  whole.output_dir = run_.dir().file("whole");
  whole.train.max_steps = moved.train.max_steps = 5;
  fs::copy(recipe_.output_dir, whole.output_dir, fs::copy_options::recursive);
  ASSERT_EQ(resume(whole), 0);
  fs::rename(run_.dir().file("images"), run_.dir().file("moved"));
  moved.data.image_root = run_.dir().file("moved");
  moved.train.activation_checkpointing = "block";
  ASSERT_EQ(resume(moved), 0);
  EXPECT_EQ(run_bytes(moved.output_dir, 5).weights, run_bytes(whole.output_dir, 5).weights);
  std::vector<std::string> warnings;
  const std::optional<Checkpoint> checkpoint =
      load_newest(moved.output_dir + "/checkpoints", &warnings);
  ASSERT_TRUE(checkpoint);
  EXPECT_EQ(checkpoint->state.at("recompute"), 1);  // the recipe's, not the stored one
}

TEST_F(ResumeGuards, ChangedDataBaseAndTokenizerAreRefused) {
  const std::string rows = slurp(run_.dir().file("rows.json"));
  Json changed = Json::parse(rows);
  std::swap(changed[0], changed[1]);
  run_.dir().write("rows.json", changed.dump());
  EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, "data", resume(recipe_));
  run_.dir().write("rows.json", rows);

  const std::string config = slurp(run_.model() + "/config.json");
  Json other = Json::parse(config);
  other["text_config"]["rms_norm_eps"] = 2e-5;
  run_.dir().write("model/config.json", other.dump());
  EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, "base", resume(recipe_));
  run_.dir().write("model/config.json", config);

  const std::string tokenizer = slurp(run_.model() + "/tokenizer.json");
  Json bytes = Json::parse(tokenizer);
  std::swap(bytes["model"]["vocab"]["<0x41>"], bytes["model"]["vocab"]["<0x42>"]);
  run_.dir().write("model/tokenizer.json", bytes.dump());
  EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, "tokenizer", resume(recipe_));
  run_.dir().write("model/tokenizer.json", tokenizer);
  EXPECT_EQ(resume(recipe_), 0);
}

/// Where the ids of the probe, the blocks of the fingerprint and the sizes and times of files are
/// unchanged.
TEST_F(ResumeGuards, AByteThatChangesIsRefusedByName) {
  const auto refuses = [&](const std::string& file, const std::string& name, auto spoil) {
    const std::string path = run_.dir().file(file), before = slurp(path);
    const auto time = fs::last_write_time(path);
    std::string bytes = before;
    spoil(bytes);
    run_.dir().write(file, bytes);
    if (bytes.size() == before.size()) fs::last_write_time(path, time);
    EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, name, resume(recipe_));
    run_.dir().write(file, before);
    fs::last_write_time(path, time);
  };
  const auto replace = [](const std::string& from, const std::string& to) {
    return [=](std::string& bytes) {
      const size_t at = bytes.find(from);
      ASSERT_NE(at, std::string::npos) << from;
      bytes.replace(at, from.size(), to);
    };
  };
  refuses("model/model.safetensors", "bytes of its weights differ",
          [](std::string& bytes) { bytes[bytes.size() / 3] ^= 1; });
  refuses("images/red0.bmp", "images: stored", [](std::string& bytes) { bytes[60] ^= 1; });
  // A letter that occurs in no row.
  refuses("model/tokenizer.json", "tokenizer: vocabulary", [](std::string& bytes) {
    Json json = Json::parse(bytes);
    std::swap(json["model"]["vocab"]["<0xF1>"], json["model"]["vocab"]["<0xF2>"]);
    bytes = json.dump();
  });
  refuses("model/tokenizer.json", "tokenizer: model options",
          replace("\"ignore_merges\":false", "\"ignore_merges\":true"));
  refuses("model/tokenizer.json", "tokenizer: normalizer",
          replace("\"pattern\":{\"String\":\" \"}", "\"pattern\":{\"String\":\"~\"}"));
  refuses("model/tokenizer.json", "tokenizer: added tokens",
          replace("\"lstrip\":false", "\"lstrip\":true"));
  EXPECT_EQ(resume(recipe_), 0);
}

TEST(Resume, ItsOwnCheckpointsCountAsFreeSpace) {
  const test::TinyRun run;
  const Recipe recipe = resumable(run, "out", {});
  const uint64_t free = free_bytes(recipe.output_dir);
  const auto parameters = static_cast<int64_t>(2 * free / (3 * sizeof(float) * 102));
  EXPECT_LFT_ERROR(ErrorKind::kResource, "the disk is too small",
                   check_disk_space(recipe, parameters));
  run.dir().write("out/checkpoints/step-1/optimizer.safetensors", "");
  fs::resize_file(recipe.output_dir + "/checkpoints/step-1/optimizer.safetensors", 2 * free);
  EXPECT_NO_THROW(check_disk_space(recipe, parameters));
}

TEST(Resume, ChangedHeldOutRowsAreRefusedByName) {
  const test::TinyRun run;
  Recipe recipe = resumable(run, "held-out", {});
  recipe.train.max_steps = 3;
  const std::string rows = slurp(run.dir().file("rows.json"));
  recipe.data.eval = run.dir().write("eval.json", rows);
  ASSERT_EQ(train::train(recipe), 0);
  Json changed = Json::parse(rows);
  changed[0]["conversations"][1]["value"] = "white";
  run.dir().write("eval.json", changed.dump());
  EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, "held-out data: stored",
                   train::train(recipe, {.resume = true}));
  changed = Json::parse(rows);
  changed[0]["image"] = "copy.bmp";
  run.dir().write("images/copy.bmp", slurp(run.dir().file("images/red0.bmp")));
  recipe.output_dir += "-image";
  recipe.data.eval = run.dir().write("eval.json", changed.dump());
  ASSERT_EQ(train::train(recipe), 0);
  std::string bytes = slurp(run.dir().file("images/copy.bmp"));
  bytes[60] ^= 1;
  run.dir().write("images/copy.bmp", bytes);
  EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, "held-out images: stored",
                   train::train(recipe, {.resume = true}));
  // Without the rows, and from a checkpoint that records nothing of them.
  Recipe without = recipe;
  without.data.eval.clear();
  EXPECT_EQ(train::train(without, {.resume = true}), 0);
  const std::string dir = recipe.output_dir + "/checkpoints";
  Checkpoint checkpoint = load_checkpoint(dir + "/step-3");
  checkpoint.identity.erase("held-out data");
  checkpoint.identity.erase("held-out images");
  save_checkpoint(dir, checkpoint, 3);
  EXPECT_EQ(train::train(recipe, {.resume = true}), 0);
}

TEST_F(ResumeGuards, AChangedProcessorIsRefusedByName) {
  run_.dir().write("model/preprocessor_config.json", R"({"image_mean":[0.5,0.5,0.5]})");
  EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, "image mean and std: stored", resume(recipe_));
}

TEST_F(ResumeGuards, ACheckpointThatRecordsLessIsRefused) {
  const std::string dir = recipe_.output_dir + "/checkpoints";
  Checkpoint checkpoint = load_checkpoint(dir + "/step-3");
  checkpoint.identity.erase("tokenizer: ids of a sample text");
  save_checkpoint(dir, checkpoint, 3);
  EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, "which recorded less", resume(recipe_));
}

TEST_F(ResumeGuards, ATokenizerThatIsOnlySpelledOtherwiseIsTheSame) {
  const Json json = Json::parse(slurp(run_.model() + "/tokenizer.json"));
  run_.dir().write("model/tokenizer.json", json.dump(3, ' ', /*ensure_ascii=*/true));
  EXPECT_EQ(resume(recipe_), 0);
}

TEST_F(ResumeGuards, ARestoredStateThatDoesNotReproduceTheProbeLossIsRefused) {
  const auto reset = [](Model& model) {
    const at::NoGradGuard no_grad;
    for (auto& parameter : model->named_parameters()) {
      if (parameter.key().ends_with("lora_B")) parameter.value().zero_();
    }
  };
  EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, "does not reproduce the probe loss",
                   train::train(recipe_, {.resume = true, .restored = reset}));
}

TEST_F(ResumeGuards, ADamagedCheckpointGivesWayToTheOneBeforeAndNoneIsAnError) {
  const test::RunBytes before = run_bytes(recipe_.output_dir, 3);
  const auto cut = [&](int step) {
    const std::string file = recipe_.output_dir + "/checkpoints/step-" + std::to_string(step) +
                             "/trainables.safetensors";
    fs::resize_file(file, fs::file_size(file) - 1);
  };
  cut(3);
  EXPECT_EQ(resume(recipe_), 0);
  EXPECT_EQ(run_bytes(recipe_.output_dir, 3), before);
  for (int step = 0; step <= 3; ++step) cut(step);
  EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, "trainables.safetensors", resume(recipe_));
}

TEST_F(ResumeGuards, WithoutACheckpointItStartsFromTheBeginning) {
  const test::RunBytes before = run_bytes(recipe_.output_dir, 3);
  fs::remove_all(recipe_.output_dir + "/checkpoints");
  EXPECT_EQ(resume(recipe_), 0);
  EXPECT_EQ(run_bytes(recipe_.output_dir, 3), before);
  EXPECT_TRUE(events(recipe_.output_dir, "resume").empty());
}

TEST_F(ResumeGuards, AFreshRunIntoItNamesRunAndStep) {
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "step 3", train::train(recipe_));
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "--resume", train::train(recipe_));
}

TEST_F(ResumeGuards, AnotherLibraryOrProcessorIsAWarningOnly) {
  Recipe recipe = recipe_;
  recipe.output_dir = run_.dir().file("elsewhere");
  recipe.train.max_steps = 4;
  test::copy_killed(recipe_.output_dir, recipe.output_dir, 3);
  // A checkpoint written on another processor: the manifest is rebuilt for it.
  std::vector<std::string> warnings;
  Checkpoint checkpoint = *load_newest(recipe.output_dir + "/checkpoints", &warnings);
  checkpoint.environment["cpu"] = "another processor";
  fs::remove_all(recipe.output_dir + "/checkpoints");
  save_checkpoint(recipe.output_dir + "/checkpoints", checkpoint, 1);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(resume(recipe), 0);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("another processor"), std::string::npos);
}

TEST_F(ResumeGuards, AChangedImageIsAWarningOnly) {
  const auto said = [&] {
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(resume(recipe_), 0);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(said().find("images by size and time"), std::string::npos);
  for (const auto& image : fs::recursive_directory_iterator(run_.dir().file("images"))) {
    if (image.is_regular_file())
      fs::last_write_time(image, image.last_write_time() + std::chrono::hours(1));
  }
  EXPECT_NE(said().find("images by size and time was "), std::string::npos);
}

TEST_F(ResumeGuards, TheThreadCountOfTheCheckpointIsSetAgain) {
  const int threads = at::get_num_threads();
  at::set_num_threads(threads == 1 ? 2 : 1);
  EXPECT_EQ(resume(recipe_), 0);
  EXPECT_EQ(at::get_num_threads(), threads);
}

TEST(Resume, StartedFromAnAdapterDoesNotNeedItAgain) {
  const test::TinyRun run(10);
  const Recipe base = resumable(run, "base", {"", "fp32", "cosine", 0});
  ASSERT_EQ(train::train(base), 0);
  Recipe next = resumable(run, "next", {"", "fp32", "cosine", 0});
  next.lora.init_from = base.output_dir + "/adapter";
  next.train.max_steps = 3;
  ASSERT_EQ(train::train(next), 0);
  const test::RunBytes bytes = run_bytes(next.output_dir, 3);
  fs::remove_all(base.output_dir);
  EXPECT_EQ(train::train(next, {.resume = true}), 0);
  EXPECT_EQ(run_bytes(next.output_dir, 3), bytes);
}

}  // namespace
}  // namespace lft::resume_test
