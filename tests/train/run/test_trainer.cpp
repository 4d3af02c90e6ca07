// Whole runs of a tiny model: output files, repeatability, errors before anything is loaded.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/tensor_file.h"
#include "src/hf/adapter/adapter.h"
#include "src/hf/adapter/adapter_notes.h"
#include "src/hf/weights.h"
#include "src/io/json.h"
#include "src/train/check/check.h"
#include "src/train/inputs/run_inputs.h"
#include "src/train/run/trainer.h"
#include "support/expect_error.h"
#include "train/run_files.h"
#include "train/tiny_run.h"

namespace lft::trainer_test {
using namespace lft::hf;
using namespace lft::io;
using namespace lft::recipe;
using namespace lft::train;
namespace {

using test::slurp;

using test::step_lines;

std::string adapter_bytes(const Recipe& recipe) {
  EXPECT_EQ(train::train(recipe), 0);
  return slurp(recipe.output_dir + "/adapter/adapter_model.safetensors");
}

TEST(Trainer, KeepsWhatItHasWhereASampleCannotBeRead) {
  const test::TinyRun run;
  Recipe recipe = run.recipe("out");
  recipe.data.eval.clear();
  recipe.data.shuffle = false;
  recipe.train.batch_size = 1;
  recipe.train.worst_first = false;
  run.dir().write("images/blue5.bmp", slurp(run.dir().file("images/blue5.bmp")).substr(0, 100));
  try {
    train::train(recipe);
    ADD_FAILURE() << "a cut image was trained";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_NE(error.info().where.find("blue5.bmp"), std::string::npos) << error.info().where;
    EXPECT_NE(error.info().next.find("step 5 is saved"), std::string::npos) << error.info().next;
    EXPECT_NE(
        error.info().next.find("--set lora.init_from=" + recipe.output_dir + "/checkpoints/step-5"),
        std::string::npos)
        << error.info().next;
  }
  EXPECT_EQ(step_lines(recipe.output_dir).size(), 5u);
  EXPECT_EQ(test::metric_lines(recipe.output_dir).back()["event"], "checkpoint");
  EXPECT_EQ(checkpoint::load_checkpoint(recipe.output_dir + "/checkpoints/step-5").step, 5);
  EXPECT_NE(slurp(recipe.output_dir + "/report.html").find("stopped"), std::string::npos);
  EXPECT_NO_THROW(AdapterDir::open(recipe.output_dir + "/adapter"));
  // The remedy that the error names.
  Recipe on = recipe;
  on.output_dir = run.dir().file("on");
  on.lora.init_from = recipe.output_dir + "/checkpoints/step-5";
  on.data.train = run.dir().write("whole.json", [&] {
    Json rows = Json::parse(slurp(recipe.data.train.path));
    rows.erase(5);
    return rows.dump();
  }());
  EXPECT_EQ(train::train(on), 0);
}

TEST(Trainer, WritesEveryFileOfARunAndLearns) {
  const test::TinyRun run;
  Recipe recipe = run.recipe("out");
  recipe.train.max_steps = 30;
  recipe.train.eval_every_steps = 10;
  recipe.log.every_steps = 7;  // printed lines only; the metrics contain every step
  ASSERT_EQ(train::train(recipe), 0);
  for (const char* file :
       {"recipe.resolved.yaml", "environment.json", "metrics.jsonl", "report.html",
        "adapter/adapter_config.json", "adapter/adapter_model.safetensors"}) {
    EXPECT_TRUE(std::filesystem::exists(recipe.output_dir + "/" + file)) << file;
  }
  EXPECT_FALSE(std::filesystem::is_empty(recipe.output_dir + "/tensorboard"));
  const std::vector<Json> steps = step_lines(recipe.output_dir);
  ASSERT_EQ(steps.size(), 30u);
  EXPECT_EQ(steps[0]["step"], 1);
  EXPECT_EQ(steps[0]["lr"], 0);  // warm-up of ceil(0.03 * 30) = 1 step
  EXPECT_EQ(steps[1]["lr"], 0.01);
  EXPECT_EQ(steps[0]["precision"], "fp32");
  EXPECT_LT(steps[29]["loss"].get<double>(), 0.5 * steps[0]["loss"].get<double>());
  std::vector<int> evals;
  for (const Json& line : test::metric_lines(recipe.output_dir)) {
    if (line.value("event", "") == "eval") evals.push_back(line["step"]);
  }
  EXPECT_EQ(evals, (std::vector<int>{10, 20, 30}));
  settle_accumulation(recipe, 12);
  EXPECT_EQ(
      dump_recipe(parse_recipe(slurp(recipe.output_dir + "/recipe.resolved.yaml"), "resolved")),
      dump_recipe(recipe));
}

/// Headers are complete, pixels are missing: only a step detects them.
TEST(Trainer, LeavesOutNoMoreBadSamplesThanMaxBad) {
  const test::TinyRun run;
  nlohmann::json rows = nlohmann::json::parse(slurp(run.dir().file("rows.json")));
  run.dir().write("images/cut.bmp", test::bmp(20, 18, 1, 2, 3).substr(0, 60));
  rows[5]["image"] = rows[8]["image"] = "cut.bmp";
  run.dir().write("rows.json", rows.dump());
  Recipe enough = run.recipe("enough");
  enough.data.eval.clear();
  enough.data.on_bad_sample = "skip";
  enough.data.max_bad = 2;
  enough.train.max_steps = 7;  // each is used twice
  EXPECT_EQ(train::train(enough), 0);
  EXPECT_GE(test::events(enough.output_dir, "sample_skipped").size(), 4u);
  Recipe few = enough;
  few.output_dir = run.dir().file("few");
  few.data.max_bad = 1;
  EXPECT_LFT_ERROR(ErrorKind::kInput, "at most data.max_bad = 1", train::train(few));
}

TEST(Trainer, SameSeedSameBytesWhateverTheWorkers) {
  const test::TinyRun run;
  Recipe first = run.recipe("a"), second = run.recipe("b"), third = run.recipe("c");
  second.data.workers = 4;
  third.train.seed = 43;
  const std::string bytes = adapter_bytes(first);
  EXPECT_FALSE(bytes.empty());
  EXPECT_EQ(bytes, adapter_bytes(second));
  EXPECT_NE(bytes, adapter_bytes(third));
}

TEST(Trainer, EpochsKeepTheirShortLastBatch) {
  const test::TinyRun run(/*rows=*/10);
  Recipe recipe = run.recipe("out");
  recipe.train.max_steps = 0;
  recipe.train.epochs = 2;
  recipe.train.grad_accum = 2;  // 8 + 2 rows
  ASSERT_EQ(train::train(recipe), 0);
  const std::vector<Json> steps = step_lines(recipe.output_dir);
  ASSERT_EQ(steps.size(), 4u);
  const int64_t epoch =
      steps[0]["supervised_tokens"].get<int64_t>() + steps[1]["supervised_tokens"].get<int64_t>();
  EXPECT_EQ(epoch, steps[2]["supervised_tokens"].get<int64_t>() +
                       steps[3]["supervised_tokens"].get<int64_t>());
}

TEST(Trainer, StartsFromAnAdapterAndSaysWhatDoesNotFit) {
  const test::TinyRun run;
  ASSERT_EQ(train::train(run.recipe("first")), 0);
  Recipe second = run.recipe("second");
  second.lora.init_from = run.dir().file("first/adapter");
  ASSERT_EQ(train::train(second), 0);
  EXPECT_LT(step_lines(second.output_dir)[0]["loss"].get<double>(),
            step_lines(run.dir().file("first"))[0]["loss"].get<double>());

  Recipe other = second;
  other.output_dir = run.dir().file("other");
  other.lora.rank = 2;
  EXPECT_LFT_ERROR(ErrorKind::kInput, "rank 4", open_inputs(other));
  other = second;
  other.output_dir = run.dir().file("other");
  other.lora.targets = {"llm:q_proj"};
  EXPECT_LFT_ERROR(ErrorKind::kInput, "not in lora.targets", open_inputs(other));
  other.lora.targets = {"llm:all-linear"};
  other.full.clear();
  EXPECT_LFT_ERROR(ErrorKind::kInput, "full: [projector]", open_inputs(other));
  other = second;
  other.output_dir = run.dir().file("other");
  other.lora.variant = "pissa";
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "begins from the base's own weights", open_inputs(other));
}

TEST(Trainer, AnAdapterToStartFromGivesTheTemplate) {
  const test::TinyRun run;
  Recipe first = run.recipe("first");
  first.data.chat_template = "plain";
  first.train.max_steps = 2;
  ASSERT_EQ(train::train(first), 0);
  Recipe second = run.recipe("second");
  second.data.chat_template = "auto";
  EXPECT_NE(open_inputs(second).recipe.data.chat_template, "plain");
  second.lora.init_from = first.output_dir + "/adapter";
  EXPECT_EQ(open_inputs(second).recipe.data.chat_template, "plain");
  second.data.chat_template = "llava-v1";  // the recipe's value is used
  EXPECT_EQ(open_inputs(second).recipe.data.chat_template, "llava-v1");
}

/// lft generate refuses both too.
TEST(Trainer, AnAdapterOfAnotherBaseOrTokenizerIsNoStart) {
  const test::TinyRun run, stranger;
  ASSERT_EQ(train::train(run.recipe("first")), 0);
  Recipe second = run.recipe("second");
  second.lora.init_from = run.dir().file("first/adapter");
  EXPECT_NO_THROW(open_inputs(second));

  auto moved = checkpoint::read_tensor_file(run.model() + "/model.safetensors");
  moved.begin()->second = moved.begin()->second + 0.5;  // same shapes, other values
  write_tensors(stranger.model() + "/model.safetensors", moved);
  Recipe other = second;
  other.model.path = stranger.model();
  EXPECT_LFT_ERROR(ErrorKind::kInput, "trained on another base model", open_inputs(other));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "trained on another base model", train::train(other));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "trained on another base model", train::check(other));

  const std::string notes = second.lora.init_from + "/lft_adapter.json";
  Json changed = Json::parse(test::slurp(notes));
  for (auto& [part, hash] : changed["tokenizer"].items()) hash = "another";
  run.dir().write("first/adapter/lft_adapter.json", changed.dump());
  EXPECT_LFT_ERROR(ErrorKind::kInput, "trained with another tokenizer", open_inputs(second));
}

TEST(Trainer, TrainsEverythingIntoAModelDirectory) {
  const test::TinyRun run;
  Recipe recipe = run.recipe("out");
  recipe.full = {"all"};
  ASSERT_EQ(train::train(recipe), 0);
  EXPECT_FALSE(std::filesystem::exists(recipe.output_dir + "/adapter"));
  const AdapterNotes notes = read_model_notes(recipe.output_dir + "/model");
  EXPECT_EQ(notes.input.template_name, "llava-hf");
  EXPECT_EQ(notes.input.image_fit, "pad");
  EXPECT_EQ(notes.base_path, run.model());
  Recipe again = run.recipe("again");
  again.model.path = recipe.output_dir + "/model";
  EXPECT_EQ(train::train(again), 0);
}

TEST(Trainer, RefusesAnOutputDirectoryThatHoldsARunOrIsAnInput) {
  const test::TinyRun run;
  ASSERT_EQ(train::train(run.recipe("out")), 0);
  const std::string before = slurp(run.dir().file("out/metrics.jsonl"));
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "contains a run", train::train(run.recipe("out")));
  EXPECT_EQ(before, slurp(run.dir().file("out/metrics.jsonl")));
  Recipe inside = run.recipe("x");
  inside.output_dir = run.model() + "/out";
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "inside the input", train::train(inside));
  EXPECT_LFT_ERROR(ErrorKind::kResource, "is a file", train::train(run.recipe("rows.json")));
}

TEST(Trainer, ABadImageStopsOrIsSkippedByName) {
  const test::TinyRun run;
  const std::string image = slurp(run.dir().file("images/green1.bmp"));
  run.dir().write("images/green1.bmp", image.substr(0, image.size() / 2));
  Recipe recipe = run.recipe("out");
  recipe.data.eval.clear();
  EXPECT_LFT_ERROR(ErrorKind::kInput, "green1.bmp", train::train(recipe));
  recipe.output_dir = run.dir().file("skip");
  recipe.data.on_bad_sample = "skip";
  recipe.train.max_steps = 3;
  ASSERT_EQ(train::train(recipe), 0);
  int skipped = 0;
  for (const Json& line : test::metric_lines(recipe.output_dir))
    skipped += line.value("event", "") == "sample_skipped" ? 1 : 0;
  EXPECT_EQ(skipped, 1);
}

TEST(Trainer, NothingToTrainIsAUsageError) {
  const test::TinyRun run;
  Recipe recipe = run.recipe("out");
  recipe.lora.targets.clear();
  recipe.full.clear();
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "nothing to train", train::train(recipe));
  recipe.lora.targets = {"llm:q_project"};
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "q_proj", train::train(recipe));
  EXPECT_FALSE(std::filesystem::exists(recipe.output_dir));
}

}  // namespace
}  // namespace lft::trainer_test
