// `lft debug nan` and `lft replay` over whole runs: a run's incident is reproduced or
// distinguished, and refused if damaged.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <limits>

#include "cli/run_lft.h"
#include "debug/stored_model.h"
#include "src/checkpoint/tensor_file.h"
#include "src/debug/nan/nan_run.h"
#include "src/debug/nan/replay.h"
#include "src/infer/evaluate.h"
#include "src/io/files.h"
#include "src/io/run_folder.h"
#include "src/train/run/trainer.h"
#include "support/expect_error.h"
#include "support/poison.h"
#include "support/prompt_of.h"
#include "train/label_rows.h"
#include "train/pair_rows.h"
#include "train/run_files.h"

namespace lft::test::replay_test {
using namespace lft::checkpoint;
namespace {

const std::string kUp = "language_model.model.layers.1.mlp.up_proj";

Recipe fp16_recipe(const test::TinyRun& run, const std::string& out) {
  Recipe recipe = run.recipe(out);
  recipe.model.base_dtype = "fp32";
  recipe.precision.compute = "fp16";
  recipe.data.eval.clear();
  recipe.train.max_steps = 3;
  return recipe;
}

/// A run with an FP16 overflow in its first step, and the incident it writes.
struct Overflowed {
  Overflowed() {
    test::change_model(run,
                       [](test::StoredTensors& tensors) { test::scale_mlp(tensors, 1, 0x1p20f); });
    recipe = fp16_recipe(run, "out");
    EXPECT_EQ(train::train(recipe), 0);
    incident = recipe.output_dir + "/incidents/step-1";
  }
  test::TinyRun run;
  Recipe recipe;
  std::string incident;
};

TEST(Replay, AnOverflowIsFoundAgainWithModuleOpAndStep) {
  const Overflowed overflowed;
  const auto before = fs::last_write_time(overflowed.incident);
  ::testing::internal::CaptureStdout();
  EXPECT_LFT_ERROR(ErrorKind::kNumeric, "aten::to (in it aten::copy_) in " + kUp,
                   replay(overflowed.incident));
  const std::string text = ::testing::internal::GetCapturedStdout();
  for (const char* piece :
       {"step     1 in fp16", "first value that is not finite", "inputs were finite: yes",
        "fp32 pass differs at ", "in fp32 the same is finite: loss",
        "overflow of fp16: inputs of aten::to reach"}) {
    EXPECT_NE(text.find(piece), std::string::npos) << piece << " is not in\n" << text;
  }
  EXPECT_NE(text.find("at fault  row"), std::string::npos) << text;
  EXPECT_EQ(text.find("not what the incident saw"), std::string::npos) << text;
  EXPECT_LFT_ERROR(ErrorKind::kNumeric, "found: likely cause: overflow of fp16: inputs of aten::to",
                   replay(overflowed.incident));
  EXPECT_LFT_ERROR(ErrorKind::kNumeric, "next: set precision.compute to bf16 or fp32",
                   replay(overflowed.incident));
  EXPECT_EQ(fs::last_write_time(overflowed.incident), before);
  EXPECT_FALSE(fs::exists(overflowed.incident + "/replay"));
  // Found before any training too, on the same batch.
  Recipe fresh = overflowed.recipe;
  fresh.output_dir += "-fresh";
  EXPECT_LFT_ERROR(ErrorKind::kNumeric, "step 1, micro-batch 0, samples row", debug_nan(fresh, 1));
  EXPECT_FALSE(fs::exists(fresh.output_dir));
}

/// A run with finite steps and an evaluation that is not finite because of a token.
class OverflownEvaluation {
 public:
  OverflownEvaluation() {
    recipe = fp16_recipe(run, "out");
    recipe.full.clear();
    recipe.lora.targets = {"llm:v_proj"};
    recipe.lora.dropout = 0.5;  // none in an evaluation
    recipe.optim.lr = 1e-6;
    recipe.data.eval = run.dir().file("rows.json");
    poison(3 + 'z');
  }

  void poison(int64_t token) {
    test::change_model(
        run, [&](test::StoredTensors& tensors) { test::poison_token(tensors, token, 0, 6e4f); });
  }

  /// Rows of which one contains a "z".
  void ask_with_it() {
    Json rows = Json::parse(test::slurp(run.dir().file("rows.json")));
    rows[4]["conversations"][0]["value"] = "<image>\nA z?";
    recipe.data.eval = run.dir().write("eval.json", rows.dump());
  }

  /// Instead, the first token of the first row's answer overflows.
  int64_t answer_with_it() {
    const train::RunInputs inputs = train::open_inputs(recipe);
    train::RunModel model = train::build_model(inputs);
    const int64_t first =
        infer::generate(model.model, test::prompt_of(inputs.data.eval->get(0)), inputs.data.encode,
                        {.max_new_tokens = 1, .on_token = {}}, at::kHalf)
            .at(0);
    poison(first);
    recipe.train.keep_best = "exact";
    recipe.train.eval_every_steps = recipe.train.max_steps;
    return first;
  }

  const std::string& train_it() {
    EXPECT_EQ(train::train(recipe), 0);
    incident = recipe.output_dir + "/incidents/eval-step-3";
    return incident;
  }

  test::TinyRun run;
  Recipe recipe;
  std::string incident;
};

/// The command's output up to its finding.
std::string found_by(const std::function<int()>& command, const std::string& module) {
  ::testing::internal::CaptureStdout();
  EXPECT_LFT_ERROR(ErrorKind::kNumeric, " in " + module + " on", command());
  return ::testing::internal::GetCapturedStdout();
}

const std::string kFirstUp = "language_model.model.layers.0.mlp.up_proj";

TEST(Replay, AnAnswerOfAnEvaluationIsFoundAgain) {
  OverflownEvaluation overflown;
  const int64_t token = overflown.answer_with_it();
  const std::string incident = overflown.train_it();
  const Json row = Json::parse(test::slurp(incident + "/incident.json"))["samples"][0];
  EXPECT_EQ(row["answer_ids"], Json::array({token}));
  const std::string text = found_by([&] { return replay(incident); }, kFirstUp);
  EXPECT_NE(text.find("position " + row["position"].dump()), std::string::npos) << text;
}

TEST(Replay, AnEvaluationIsFoundAgainAndIsWhereDebugNanBegins) {
  OverflownEvaluation overflown;
  overflown.ask_with_it();
  const std::string incident = overflown.train_it();
  const Recipe& recipe = overflown.recipe;
  const std::string text = found_by([&] { return replay(incident); }, kFirstUp);
  for (const char* piece :
       {"after    step 3 in fp16", "rows of data.eval", "at fault  row4, position",
        "inputs were finite: yes", "in fp32 the same is finite: loss"}) {
    EXPECT_NE(text.find(piece), std::string::npos) << piece << " is not in\n" << text;
  }
  EXPECT_EQ(text.find("backward"), std::string::npos) << text;
  EXPECT_LFT_ERROR(ErrorKind::kNumeric, "the evaluation after step 3", replay(incident));
  const std::string newest = found_by([&] { return debug_nan(recipe, std::nullopt); }, kFirstUp);
  EXPECT_NE(newest.find("the run's newest incident"), std::string::npos) << newest;
  EXPECT_NE(newest.find(text), std::string::npos) << newest;
  EXPECT_EQ(debug_nan(recipe, 1), 0) << "the batch of a step is finite";
  Recipe fresh = recipe;
  fresh.output_dir += "-fresh";
  EXPECT_EQ(debug_nan(fresh, std::nullopt), 0) << "without an incident it is step 1";
}

TEST(Replay, AValueFromOutsideTheBatchReplaysFinite) {
  const test::TinyRun run;
  Recipe recipe = run.recipe("out");
  recipe.precision.compute = "bf16";
  recipe.train.grad_accum = 2;
  recipe.lora.dropout = 0.2;
  const auto spoil = [](int64_t step, Optimizer& optimizer) {
    if (step == 4)
      optimizer.slots()[1].param.tensor.mutable_grad().view(-1)[0] =
          std::numeric_limits<float>::quiet_NaN();
  };
  ASSERT_EQ(train::train(recipe, {.gradients_ready = spoil}), 0);
  const std::string incident = recipe.output_dir + "/incidents/step-4";
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(replay(incident), 0);
  const std::string text = ::testing::internal::GetCapturedStdout();
  EXPECT_NE(text.find("the replay is finite: the bad value came from outside the batch"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("fp32 pass agrees"), std::string::npos) << text;
}

class Preferences : public ::testing::TestWithParam<const char*> {};

/// A run whose row 4 overflows FP16 by a token of its prompt.
Recipe preferring(const test::TinyRun& run, const std::string& objective) {
  Json rows = Json::parse(test::slurp(run.dir().file("rows.json")));
  rows[4]["conversations"][0]["value"] = "<image>\nA z?";
  run.dir().write("rows.json", rows.dump());
  test::change_model(
      run, [](test::StoredTensors& tensors) { test::poison_token(tensors, 3 + 'z', 0, 6e4f); });
  Recipe recipe = fp16_recipe(run, objective);
  recipe.full.clear();
  recipe.lora.targets = {"llm:v_proj"};
  recipe.objective.name = objective;
  recipe.precision.recovery = "stop";
  recipe.train.batch_size = recipe.train.grad_accum = 2;
  recipe.train.max_steps = 6;
  recipe.data.train = objective == "kto" ? test::write_labels(run) : test::write_pairs(run);
  return recipe;
}

TEST_P(Preferences, AStepIsFoundAgainWithItsObjective) {
  const test::TinyRun run;
  const Recipe recipe = preferring(run, GetParam());
  EXPECT_LFT_ERROR(ErrorKind::kNumeric, "row4, position", train::train(recipe));
  const std::string incident = io::incident_folder(recipe.output_dir);
  const Json json = Json::parse(test::slurp(incident + "/incident.json"));
  const auto step = json["step"].get<int64_t>();
  for (const Json& micro : json["replay"]) {
    const std::string loss =
        "micro-batch " + micro["micro_batch"].dump() + ": loss " +
        train::short_number(micro["loss"].is_number() ? micro["loss"].get<double>() : NAN);
    const std::string text = found_by([&] { return replay(incident); }, kFirstUp);
    EXPECT_NE(text.find(loss), std::string::npos) << loss << " is not in\n" << text;
    EXPECT_NE(text.find("at fault  row4, position"), std::string::npos) << text;
  }
  const std::string text = found_by([&] { return debug_nan(recipe, step); }, kFirstUp);
  EXPECT_NE(text.find("at fault  row4, position"), std::string::npos) << text;
}

INSTANTIATE_TEST_SUITE_P(All, Preferences, ::testing::Values("dpo", "simpo", "kto"),
                         [](const auto& each) { return std::string(each.param); });

TEST(Replay, AReferenceThatIsMissingIsRefused) {
  const test::TinyRun run;
  const Recipe recipe = preferring(run, "dpo");
  EXPECT_LFT_ERROR(ErrorKind::kNumeric, "row4, position", train::train(recipe));
  const std::string incident = io::incident_folder(recipe.output_dir);
  Json json = Json::parse(test::slurp(incident + "/incident.json"));
  json["samples"][1].erase("reference");
  write_file_atomic(incident + "/incident.json", json.dump());
  EXPECT_LFT_ERROR(ErrorKind::kInput, "has no reference", replay(incident));
}

TEST(Replay, DamagedAndForeignIncidentsAreRefused) {
  const Overflowed overflowed;
  const std::string& good = overflowed.incident;
  const std::string dir = overflowed.run.dir().file("copy");
  const auto fresh = [&] {
    fs::remove_all(dir);
    fs::copy(good, dir, fs::copy_options::recursive);
  };
  const auto edit = [&](const std::function<void(Json&)>& change) {
    fresh();
    Json json = Json::parse(test::slurp(dir + "/incident.json"));
    change(json);
    write_file_atomic(dir + "/incident.json", json.dump());
  };
  EXPECT_LFT_ERROR(ErrorKind::kInput, "no such incident folder", replay(good + "-not"));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "no incident is here",
                   replay(overflowed.run.dir().file("images")));
  fresh();
  EXPECT_LFT_ERROR(ErrorKind::kNumeric, kUp, replay(dir));  // a copy elsewhere works too
  for (const char* file : {"incident.json", "recipe.yaml", "trainables.safetensors"}) {
    fresh();
    fs::remove(dir + "/" + file);
    EXPECT_LFT_ERROR(ErrorKind::kInput, file, replay(dir));
    fresh();
    fs::resize_file(dir + "/" + file, fs::file_size(dir + "/" + file) / 2);
    EXPECT_LFT_ERROR(ErrorKind::kInput, file, replay(dir));
  }
  edit([](Json& json) { json["version"] = 2; });
  EXPECT_LFT_ERROR(ErrorKind::kInput, "version", replay(dir));
  edit([](Json& json) { json["precision"] = "fp4"; });
  EXPECT_LFT_ERROR(ErrorKind::kInput, "precision: \"fp4\"", replay(dir));
  edit([](Json& json) { json["loss_scale"] = 0; });
  EXPECT_LFT_ERROR(ErrorKind::kInput, "loss_scale", replay(dir));
  edit([](Json& json) { json["samples"] = Json::array(); });
  EXPECT_LFT_ERROR(ErrorKind::kInput, "no sample", replay(dir));
  edit([](Json& json) { json["samples"][0]["micro_batch"] = 3; });
  EXPECT_LFT_ERROR(ErrorKind::kInput, "micro_batch 3", replay(dir));
  edit([](Json& json) { json["samples"][1]["index"] = -1; });
  EXPECT_LFT_ERROR(ErrorKind::kInput, "index", replay(dir));
  edit([](Json& json) { json.erase("generator"); });
  EXPECT_LFT_ERROR(ErrorKind::kInput, "generator is missing", replay(dir));
  edit([](Json& json) { json["generator"]["seed"] = 7; });
  EXPECT_LFT_ERROR(ErrorKind::kInput, "recipe.yaml belongs to another run", replay(dir));
  edit([](Json& json) { json["samples"][1]["id"] = "another"; });
  EXPECT_LFT_ERROR(ErrorKind::kInput, "the data is not what the incident saw", replay(dir));
  edit([](Json& json) { json["samples"][1]["index"] = 4711; });
  EXPECT_LFT_ERROR(ErrorKind::kInput, "12 rows", replay(dir));
  // Weights of a run that trains other layers.
  Recipe other = overflowed.run.recipe("other");
  other.lora.targets = {"llm:q_proj"};
  other.data.eval.clear();
  other.train.max_steps = 2;
  ASSERT_EQ(train::train(other), 0);
  fresh();
  fs::copy(other.output_dir + "/checkpoints/step-2/trainables.safetensors",
           dir + "/trainables.safetensors", fs::copy_options::overwrite_existing);
  EXPECT_LFT_ERROR(ErrorKind::kInput, "it contains other tensors than the recipe trains",
                   replay(dir));
}

TEST(Replay, WhatHasChangedSinceIsSaidBeforeAnythingElseIsBlamed) {
  const Overflowed overflowed;
  const auto replayed = [&] {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(replay(overflowed.incident), 0);
    const std::string said = ::testing::internal::GetCapturedStderr();
    return ::testing::internal::GetCapturedStdout() + said;
  };
  test::change_model(overflowed.run, [](test::StoredTensors&) {});  // restored
  const std::string fixed = replayed();
  for (const char* piece : {"not what the incident saw: base, every byte: stored ",
                            "the replay is finite over inputs that have changed since"})
    EXPECT_NE(fixed.find(piece), std::string::npos) << piece << " is not in\n" << fixed;
  EXPECT_EQ(fixed.find("memory, device"), std::string::npos) << fixed;
  // An incident without this record is replayed as before.
  Json json = Json::parse(test::slurp(overflowed.incident + "/incident.json"));
  json.erase("identity");
  write_file_atomic(overflowed.incident + "/incident.json", json.dump());
  EXPECT_NE(replayed().find("memory, device"), std::string::npos);
  // Other weights with the right names and shapes.
  const std::string weights = overflowed.incident + "/trainables.safetensors";
  TensorMap tensors = read_tensor_file(weights);
  for (auto& [name, tensor] : tensors) tensor = tensor + 0;
  tensors.begin()->second.view(-1)[0] += 1;
  write_tensor_file(weights, tensors);
  EXPECT_LFT_ERROR(ErrorKind::kInput, "the incident is damaged", replay(overflowed.incident));
}

/// CPU time of all finished child processes: other jobs on the machine do not count.
double child_seconds() {
  rusage used{};
  getrusage(RUSAGE_CHILDREN, &used);
  return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

TEST(Replay, TheQuickstartIsDiagnosedInUnderFiveSeconds) {
  const std::string from = LFT_SOURCE_DIR "/recipes/quickstart/";
  const test::TempDir dir;
  fs::copy(from + "model", dir.file("model"));
  TensorMap weights = read_tensor_file(from + "model/model.safetensors");
  for (auto& [name, tensor] : weights) {
    const double factor = name == kUp + ".weight"                           ? 0x1p17
                          : name.ends_with("layers.1.mlp.down_proj.weight") ? 0x1p-17
                                                                            : 1;
    tensor = tensor.to(at::kFloat) * factor;
  }
  write_tensor_file(dir.file("model/model.safetensors"), weights);
  const std::vector<std::string> sets = {"model.path=" + dir.file("model"),
                                         "output_dir=" + dir.file("out"),
                                         "data.train=" + from + "digits/train.json",
                                         "data.image_root=" + from + "digits/images",
                                         "data.eval=null",
                                         "precision.compute=fp16",
                                         "precision.recovery=stop"};
  const Recipe recipe = read_recipe(LFT_SOURCE_DIR "/recipes/quickstart.yaml", sets);
  EXPECT_LFT_ERROR(ErrorKind::kNumeric, "the loss is not finite", train::train(recipe));
  const std::string file = dir.write("quickstart.yaml", dump_recipe(recipe));
  for (const std::string& command :
       {"replay " + recipe.output_dir + "/incidents/step-1", "debug nan " + file}) {
    const double before = child_seconds();
    const test::Ran ran = test::run_lft(command);  // on one thread
    EXPECT_EQ(ran.code, 5) << ran.err;
    EXPECT_NE(ran.err.find("in " + kUp + " on"), std::string::npos) << ran.err;
    EXPECT_LT(child_seconds() - before, 5.0) << command;
  }
}

TEST(Replay, TheCommandsExitWith5OnlyWhereSomethingIsFound) {
  const Overflowed overflowed;
  const test::Ran found = test::run_lft("replay " + overflowed.incident);
  EXPECT_EQ(found.code, 5);
  EXPECT_EQ(found.count("error:"), 1) << found.err;
  EXPECT_NE(found.err.find("in " + kUp), std::string::npos) << found.err;
  EXPECT_NE(found.out.find("  module   " + kUp + "\n"), std::string::npos) << found.out;
  const std::string recipe =
      overflowed.run.dir().write("fp32.yaml", dump_recipe(overflowed.recipe));
  const std::string fp32 =
      "debug nan " + recipe +
      " --set precision.compute=fp32 --set output_dir=" + overflowed.run.dir().file("none");
  EXPECT_EQ(test::run_lft(fp32).code, 0);
  EXPECT_EQ(test::run_lft(fp32 + " --step 99").code, 2);
  const test::Ran by_run = test::run_lft("replay " + overflowed.recipe.output_dir);
  EXPECT_EQ(by_run.code, 5);
  EXPECT_EQ(by_run.count("using " + overflowed.incident + " of the run "), 1) << by_run.err;
  EXPECT_EQ(test::run_lft("replay").code, 2);
  EXPECT_EQ(test::run_lft("replay " + overflowed.run.dir().file("nowhere")).code, 3);
}

TEST(DebugNan, ANanInABaseFileIsNamedWhereTheLoaderLetsItIn) {
  const test::TinyRun run;
  const std::string name = "multi_modal_projector.linear_1.weight";
  test::change_model(run, [&](test::StoredTensors& tensors) {
    test::stored_values(tensors, name)[9] = std::numeric_limits<float>::quiet_NaN();
  });
  Recipe recipe = run.recipe("out");
  EXPECT_LFT_ERROR(ErrorKind::kInput, name, debug_nan(recipe, 1));  // model.check_weights
  recipe.model.check_weights = false;
  EXPECT_LFT_ERROR(ErrorKind::kNumeric, "weight " + name, debug_nan(recipe, 1));
  EXPECT_LFT_ERROR(ErrorKind::kNumeric, "1 NaN of 768, the first at flat index 9",
                   debug_nan(recipe, 1));
}

TEST(DebugNan, TakesTheNewestCheckpointBeforeTheStep) {
  const test::TinyRun run;
  Recipe recipe = fp16_recipe(run, "out");
  recipe.precision.recovery = "stop";
  recipe.precision.loss_scale.init = 1;  // an overflow is not skipped
  recipe.checkpoint = {.every_steps = 2, .keep = 100, .at_step_zero = true};
  recipe.optim.lr = 10;  // the first update breaks the adapters
  recipe.optim.warmup_ratio = 0;
  recipe.optim.clip_grad_norm = 0;
  EXPECT_LFT_ERROR(ErrorKind::kNumeric, "step 3", train::train(recipe));
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(debug_nan(recipe, 1), 0);
  EXPECT_EQ(debug_nan(recipe, 2), 0);
  for (const auto& find : std::vector<std::function<void()>>{
           [&] { debug_nan(recipe, 3); },
           [&] { replay(recipe.output_dir + "/incidents/step-3"); }}) {
    EXPECT_LFT_ERROR(ErrorKind::kNumeric,
                     "found: likely cause: learning rate too high, without warm-up: the", find());
    EXPECT_LFT_ERROR(ErrorKind::kNumeric, "next: lower optim.lr", find());
  }
  const std::string text = ::testing::internal::GetCapturedStdout();
  const std::string rate = "learning rate too high, without warm-up: the largest trained weight is";
  for (const std::string piece :
       {"of the checkpoint of step 0, as the step found them", "which found them 1 step further",
        "of the checkpoint of step 2, as the step found them", "after rates that sum to"}) {
    EXPECT_NE(text.find(piece), std::string::npos) << piece << " is not in\n" << text;
  }
  EXPECT_NE(text.find(rate), text.rfind(rate)) << text;  // both times, from the run's own figures
}

TEST(DebugNan, RefusesAStepThatTheRunHasNot) {
  const test::TinyRun run;
  const Recipe recipe = run.recipe("out");
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "1 to 6", debug_nan(recipe, 7));
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "1 to 6", debug_nan(recipe, 0));
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(debug_nan(recipe, 6), 0);
  EXPECT_NE(::testing::internal::GetCapturedStdout().find("nothing that is not finite was found"),
            std::string::npos);
}

}  // namespace
}  // namespace lft::test::replay_test
