// Guarantees of the program: exit codes, and on failure one error block without a stack trace.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "cli/run_lft.h"

namespace lft::main_test {
using namespace lft::recipe;
namespace {

using test::Ran;
using test::run_lft;
using test::TinyRun;

void expect_error(const Ran& ran, int code, const std::string& piece) {
  EXPECT_EQ(ran.code, code) << ran.err;
  EXPECT_EQ(ran.count("error:"), 1) << ran.err;
  EXPECT_NE(ran.err.find(piece), std::string::npos) << "no \"" << piece << "\" in:\n" << ran.err;
  EXPECT_EQ(ran.err.find("frame #"), std::string::npos) << ran.err;
}

std::string write_recipe(const TinyRun& run, const std::string& out,
                         const std::string& extra = "") {
  return run.dir().write(out + ".yaml", dump_recipe(run.recipe(out)) + extra);
}

TEST(Main, HelpAndVersionExitWithZero) {
  const Ran help = run_lft("--help");
  EXPECT_EQ(help.code, 0);
  for (const char* command : {"train", "check", "checkpoint", "prepare", "recipe", "generate",
                              "eval", "score", "merge", "export", "summary"}) {
    EXPECT_NE(help.out.find(command), std::string::npos) << command;
    EXPECT_EQ(run_lft(std::string(command) + " --help").code, 0) << command;
  }
  EXPECT_EQ(run_lft("").out, help.out);
  EXPECT_EQ(run_lft("").code, 0);
  EXPECT_EQ(run_lft("help").out, help.out);
  EXPECT_EQ(run_lft("help debug overfit").out, run_lft("debug overfit --help").out);
  const Ran version = run_lft("--version");
  EXPECT_EQ(version.code, 0);
  EXPECT_EQ(version.out.rfind("lft ", 0), 0u) << version.out;
}

TEST(Main, MistakesOnTheCommandLine) {
  expect_error(run_lft("trian recipe.yaml"), 2, "lft train");
  expect_error(run_lft("chat"), 2, "in lft: lft generate");
  expect_error(run_lft("'x\x1b[2J'"), 2, "\\x1b");
  expect_error(run_lft("train"), 2, "lft train --help");
  expect_error(run_lft("train a.yaml --no-such-flag"), 2, "--no-such-flag");
  expect_error(run_lft("summary . --batch 0"), 2, "range 1 to 1048576");
  expect_error(run_lft("debug memory --steps 0"), 2, "lft debug memory --help");
  expect_error(run_lft("serve --model . --host ''"), 2, "the address to listen on is empty");
}

TEST(Main, AFieldGivenAsAnOptionIsAnsweredWithSet) {
  expect_error(run_lft("train a.yaml --learning_rate 1e-4"), 2, "--set optim.lr=VALUE");
  expect_error(run_lft("train a.yaml --lr=1e-4"), 2, "--set optim.lr=VALUE");
  expect_error(run_lft("check a.yaml lora.rank=8"), 2, "--set lora.rank=VALUE");
  expect_error(run_lft("debug overfit a.yaml --num-train-epochs 3"), 2, "--set train.epochs=VALUE");
  expect_error(run_lft("train a.yaml --zzz 3"), 2, "lft train --help");
  expect_error(run_lft("train --set lora.rank=0 /nowhere.yaml"), 2, "/nowhere.yaml");
  expect_error(run_lft("merge --learning_rate 1 --adapter a --out b"), 2, "lft merge --help");
}

TEST(Main, ARunsFolderIsTakenForWhatItHolds) {
  const TinyRun run;
  const std::string recipe = write_recipe(run, "a"), out = run.dir().file("a");
  ASSERT_EQ(run_lft("train " + recipe).code, 0);
  const std::string told = "using " + out + "/adapter of the run " + out + "\n";
  const auto takes = [&](const std::string& arguments) {
    const Ran ran = run_lft(arguments);
    EXPECT_EQ(ran.code, 0) << ran.err;
    EXPECT_EQ(ran.count(told), 1) << arguments << "\n" << ran.err;
  };
  const std::string both = " --model " + run.model() + " --adapter " + out;
  const std::string rows = " --data " + run.dir().file("rows.json") + " --image-root " +
                           run.dir().file("images") + " --out ";
  takes("generate --max-new-tokens 1 --prompt Hi" + both);
  takes("eval --max-new-tokens 1" + both + rows + out + "/answers.jsonl");
  takes("score" + both + rows + out + "/scores.jsonl");
  takes("merge --adapter " + out + " --out " + run.dir().file("merged"));
  takes("train " + write_recipe(run, "b") + " --set lora.init_from=" + out);
  expect_error(run_lft("generate --prompt Hi --model " + out), 3, "no model");
}

TEST(Main, TheFolderOfARunThatTrainedEverythingIsTakenForItsModel) {
  const TinyRun run;
  const std::string out = run.dir().file("a"), told = "using " + out + "/model of the run " + out;
  ASSERT_EQ(run_lft("train " + write_recipe(run, "a") + " --set full=[all]").code, 0);
  for (const std::string& arguments :
       {"generate --max-new-tokens 1 --prompt Hi --model " + out, "summary " + out,
        "debug base " + out, "check " + write_recipe(run, "b") + " --set model.path=" + out}) {
    const Ran ran = run_lft(arguments);
    EXPECT_EQ(ran.code, 0) << ran.err;
    EXPECT_EQ(ran.count(told), 1) << arguments << "\n" << ran.err;
  }
}

TEST(Main, RecipeErrors) {
  const TinyRun run;
  expect_error(run_lft("train " + run.dir().file("none.yaml")), 2, "none.yaml");
  expect_error(run_lft("train " + write_recipe(run, "a", "lorra: 1\n")), 2, "lora");
  expect_error(run_lft("train " + write_recipe(run, "b") + " --set lora.rank=-3"), 2, "lora.rank");
  expect_error(run_lft("train " + write_recipe(run, "c") + " --set lora.targets=[llm:nothing]"), 2,
               "nothing");
}

/// A file that cannot be parsed, and folders that are no model, end with what to do.
TEST(Main, UnreadableFilesHaveANextStep) {
  const TinyRun run;
  const std::string yaml = run.dir().write("bad.yaml", "model: {path: x\n  - y: [\n"),
                    json = run.dir().write("broken/config.json", "{");
  std::filesystem::create_directory(run.dir().file("empty"));
  const std::string rows = " --data " + run.dir().file("none.json");
  const auto next_of = [](const Ran& ran, int code, const std::string& where) {
    expect_error(ran, code, where);
    const size_t at = ran.err.find("\n  next: ");
    return at == std::string::npos ? "none: " + ran.err : ran.err.substr(at + 9);
  };
  EXPECT_EQ(next_of(run_lft("train " + yaml), 2, yaml),
            "correct it there; lft recipe cat rows-200 prints a recipe to compare with\n");
  for (const std::string& folder : {run.dir().file("empty"), std::string("/etc")})
    EXPECT_EQ(next_of(run_lft("eval --model " + folder + rows), 3, folder),
              "check model.path or --model\n");
  EXPECT_EQ(next_of(run_lft("eval --model " + run.dir().file("broken") + rows), 3, json),
            "fix the file at this place, or download it again\n");
}

TEST(Main, InputErrors) {
  const TinyRun run;
  const std::string recipe = write_recipe(run, "a");
  expect_error(run_lft("train " + recipe + " --set model.path=" + run.dir().file("nowhere")), 3,
               "nowhere");
  expect_error(run_lft("train " + recipe + " --set data.train=" + run.dir().file("none.json")), 3,
               "none.json");
  run.dir().write("model/tokenizer.json", "{\"version\": 1");
  expect_error(run_lft("train " + recipe), 3, "tokenizer.json");
}

TEST(Main, ATruncatedImageNamesTheSample) {
  const TinyRun run;
  ASSERT_EQ(run_lft("check " + write_recipe(run, "a")).code, 0);
  run.dir().write("images/red0.bmp", test::slurp(run.dir().file("images/red0.bmp")).substr(0, 100));
  expect_error(run_lft("train " + write_recipe(run, "a")), 3, "red0.bmp");
  expect_error(run_lft("check " + write_recipe(run, "b")), 3, "red0.bmp");
}

TEST(Main, ASampleLongerThanTheModelAllows) {
  const TinyRun run;
  const std::string rows =
      R"([{"id": "long", "image": "red0.bmp", "conversations": [{"from": "human", )"
      R"("value": "<image>)" +
      std::string(30, 'x') + R"("}, {"from": "gpt", "value": "a"}]}])";
  expect_error(
      run_lft("train " + write_recipe(run, "a") +
              " --set data.max_tokens=8 --set data.train=" + run.dir().write("long.json", rows)),
      3, "long");
}

TEST(Main, ATrainedRunCannotBeOverwritten) {
  const TinyRun run;
  const std::string recipe = write_recipe(run, "a");
  const Ran first = run_lft("train " + recipe);
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_NE(first.out.find("precision  fp32"), std::string::npos) << first.out;
  expect_error(run_lft("train " + recipe), 2, "choose another output_dir");
}

/// The output of a command that writes nothing else is its result.
TEST(Main, LostOutputIsAnError) {
  for (const char* command : {"recipe ls >/dev/full", "recipe cat quickstart >/dev/full",
                              "doctor --json >/dev/full", "recipe ls >&-"}) {
    const Ran ran = run_lft(command);
    EXPECT_EQ(ran.code, 6) << command;
    EXPECT_NE(ran.err.find("the output of the command could not be written"), std::string::npos)
        << ran.err;
  }
  const Ran closed = run_lft("recipe fields | head -c 1");
  EXPECT_EQ(closed.count("error:"), 0) << closed.err;
}

TEST(Main, ClosedStdoutDoesNotStopARun) {
  const TinyRun run;
  const Ran ran = run_lft("train " + write_recipe(run, "a") + " | true");
  EXPECT_TRUE(std::filesystem::exists(run.dir().file("a/adapter/adapter_model.safetensors")))
      << ran.err;
}

TEST(Main, ASignalEndsTheRunBehindAStepWithTheAdapterSaved) {
  const TinyRun run;
  for (const auto& [name, code] : {std::pair("INT", 130), std::pair("TERM", 75)}) {
    const std::string recipe = write_recipe(run, name);
    // The run would take hours; the shell sends one signal once the metrics contain steps.
    const std::string metrics = run.dir().file(name + std::string("/metrics.jsonl"));
    const std::string arguments =
        "train " + recipe +
        " --set train.max_steps=1000000 & pid=$!; for i in $(seq 300); do [ -s " + metrics +
        " ] && break; kill -0 $pid || break; sleep 0.1; done; kill -" + name +
        " $pid; wait $pid; exit $?; true";
    const Ran ran = run_lft(arguments);
    EXPECT_EQ(ran.code, code) << name;
    EXPECT_TRUE(std::filesystem::exists(
        run.dir().file(name + std::string("/adapter/adapter_model.safetensors"))))
        << name;
  }
}

}  // namespace
}  // namespace lft::main_test
