// Defaults and refusals of generate, eval and score.
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "cli/run_lft.h"
#include "debug/stored_model.h"
#include "src/cli/infer.h"
#include "src/io/json.h"
#include "support/expect_error.h"
#include "support/poison.h"
#include "train/label_rows.h"
#include "train/run_files.h"

namespace lft::infer_test {
using namespace lft::io;
using namespace lft::recipe;
using namespace lft::train;
namespace {

using namespace test;

TEST(InferPrecision, IsFp32OnACpuAndARecipesAutoOnAGpu) {
  const auto gpu = [](int capability) {
    return DeviceFacts{.gpu = true, .capability = capability, .bf16_unit = {}};
  };
  const DeviceFacts cpu{.gpu = false, .capability = 0, .bf16_unit = "amx_bf16"};
  EXPECT_EQ(cli::infer_precision("", cpu).compute, at::kFloat);
  EXPECT_EQ(cli::infer_precision("", gpu(90)).compute, at::kBFloat16);
  EXPECT_EQ(cli::infer_precision("", gpu(75)).compute, at::kHalf);
  EXPECT_EQ(cli::infer_precision("", gpu(61)).compute, at::kFloat);
  EXPECT_EQ(cli::infer_precision("fp32", gpu(90)).compute, at::kFloat);
  EXPECT_EQ(cli::infer_precision("bf16", cpu).compute, at::kBFloat16);
  EXPECT_TRUE(cli::infer_precision("bf16", gpu(75)).notice.starts_with("--dtype: "));
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "unknown dtype", cli::infer_precision("auto", cpu));
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "--dtype", cli::infer_precision("fp8", cpu));
}

std::string generate(const TinyRun& run, const std::string& more) {
  return "generate --max-new-tokens 2 --model " + run.model() + " --prompt " + more;
}

TEST(Generate, RefusesWhatIsNoNumber) {
  const TinyRun run;
  for (const char* option : {"--temperature", "--top-p"}) {
    for (const char* value : {"nan", "-nan", "inf"}) {
      const Ran ran = run_lft(generate(run, "Hi " + std::string(option) + " " + value));
      EXPECT_EQ(ran.code, 2) << ran.err;
      EXPECT_NE(ran.err.find(option), std::string::npos) << ran.err;
    }
  }
}

TEST(Generate, MarksWithoutAnImageAskForTheOption) {
  const TinyRun run;
  const Ran ran =
      run_lft(generate(run, "'<image> or <image>' --image " + run.dir().file("images/red0.bmp")));
  EXPECT_EQ(ran.code, 3) << ran.err;
  EXPECT_NE(ran.err.find("2 marks, 1 images"), std::string::npos) << ran.err;
  EXPECT_NE(ran.err.find("give --image once for each placeholder"), std::string::npos) << ran.err;
  EXPECT_EQ(ran.err.find("\"image\""), std::string::npos) << ran.err;
}

Ran chat(const TinyRun& run, const std::string& typed) {
  return run_lft("generate --max-new-tokens 2 --model " + run.model() + " < " +
                 run.dir().write("typed.txt", typed));
}

TEST(Generate, AChatBeginsAnew) {
  const TinyRun run;  // with 512 positions
  const std::string question(300, 'a');
  EXPECT_EQ(chat(run, question + "\n" + question + "\n").code, 3);
  const Ran cleared = chat(run, question + "\n/clear\n" + question + "\n");
  EXPECT_EQ(cleared.code, 0) << cleared.err;
}

TEST(Generate, AChatShowsAnImageWithTheNextQuestion) {
  const TinyRun run;
  const std::string red = run.dir().file("images/red0.bmp"), marked = "<image> What?\n";
  EXPECT_EQ(chat(run, marked).count("1 marks, 0 images"), 1);
  const Ran shown = chat(
      run, "Hi\n/image " + red + "\n" + marked + "And?\n/image " + red + "\nThis?\n/clear\nHi\n");
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_EQ(chat(run, "/image " + red + "\nHi\n/clear\n" + marked).code, 3);
  const Ran missing = chat(run, "/image /nowhere.png\nHi\n");
  EXPECT_EQ(missing.code, 0) << missing.err;
  EXPECT_EQ(missing.count("no such file: /nowhere.png; no image is added"), 1);
  const Ran quit = chat(run, "/quit\n" + marked);
  EXPECT_EQ(quit.code, 0) << quit.err;
  const Ran none = run_lft(generate(run, "Hi --image /nowhere.png"));
  EXPECT_EQ(none.code, 3);
  EXPECT_EQ(none.count("no such image file"), 1) << none.err;
  EXPECT_EQ(none.count("on_bad_sample"), 0) << none.err;
}

TEST(Generate, AMergedModelKeepsTemplateAndFit) {
  const TinyRun run;
  Recipe recipe = run.recipe("out");
  recipe.data.image_fit = "crop";
  const std::string file = run.dir().write("run.yaml", dump_recipe(recipe)),
                    adapter = run.dir().file("out/adapter");
  ASSERT_EQ(run_lft("train " + file).code, 0);
  ASSERT_EQ(run_lft("merge --adapter " + adapter + " --out " + run.dir().file("merged")).code, 0);
  const auto told = [&](const std::string& model, const std::string& more) {
    const Ran ran = run_lft("generate --max-new-tokens 2 --prompt Hi --model " + model + more);
    EXPECT_EQ(ran.code, 0);
    return ran.err;
  };
  const auto has = [](const std::string& text, const std::string& piece) {
    EXPECT_NE(text.find(piece), std::string::npos) << "no \"" << piece << "\" in:\n" << text;
  };
  has(told(run.model(), ""), "template: llava-v1 (the default), image fit: pad (the default)");
  has(told(run.model(), " --adapter " + adapter),
      "template: llava-hf (from the adapter), image fit: crop (from the adapter)");
  has(told(run.dir().file("merged"), ""),
      "template: llava-hf (from the model), image fit: crop (from the model)");
  has(told(run.dir().file("merged"), " --template plain"),
      "template: plain (as asked; the model was trained with llava-hf), image fit: crop (from the "
      "model)");
}

TEST(Generate, AnAdapterKnowsItsTokenizer) {
  const TinyRun run;
  ASSERT_EQ(run_lft("train " + run.dir().write("run.yaml", dump_recipe(run.recipe("out")))).code,
            0);
  const std::string asked = generate(run, "Hi --adapter " + run.dir().file("out/adapter"));
  EXPECT_EQ(run_lft(asked).code, 0);
  Json tokenizer = Json::parse(slurp(run.model() + "/tokenizer.json"));
  std::swap(tokenizer["model"]["vocab"]["<0x41>"], tokenizer["model"]["vocab"]["<0x42>"]);
  run.dir().write("model/tokenizer.json", tokenizer.dump());
  const Ran ran = run_lft(asked);
  EXPECT_EQ(ran.code, 3) << ran.err;
  EXPECT_NE(ran.err.find("another tokenizer"), std::string::npos) << ran.err;
}

/// A model in which the token "z" overflows in FP16: exit 5 with row and module, and the rows
/// before it are in the file.
TEST(NotFinite, EvalScoreAndGenerateNameRowTokenAndModule) {
  const TinyRun run;
  change_model(run, [](StoredTensors& tensors) { poison_token(tensors, 3 + 'z', 0, 6e4f); });
  nlohmann::json rows = nlohmann::json::parse(slurp(run.dir().file("rows.json")));
  rows[4]["conversations"][0]["value"] = "<image>\nA z?";
  const std::string out = run.dir().file("out.jsonl"),
                    over = " --template llava-hf --model " + run.model() + " --data " +
                           run.dir().write("z.json", rows.dump()) + " --image-root " +
                           run.dir().file("images") + " --out " + out,
                    up = "language_model.model.layers.0.mlp.up_proj";
  const auto expect_named = [&](const Ran& ran, const std::string& row) {
    EXPECT_EQ(ran.code, 5) << ran.err;
    for (const std::string& piece :
         {std::string("error: the model's output is not finite"), "where: " + row + ", position ",
          std::string("(token \"<0x7A>\")"), up, std::string("--dtype")}) {
      EXPECT_NE(ran.err.find(piece), std::string::npos) << piece << " is not in\n" << ran.err;
    }
    EXPECT_EQ(ran.out, "");
  };
  for (const char* command : {"eval --max-new-tokens 2", "score"}) {
    EXPECT_EQ(run_lft(command + over).code, 0) << command;
    std::filesystem::remove(out);
    expect_named(run_lft(command + over + " --dtype fp16"), "row4");
    std::istringstream lines(slurp(out));
    int found = 0;
    for (std::string text; std::getline(lines, text); ++found) {
      const Json line = Json::parse(text);
      EXPECT_EQ(line["loss"].is_null(), line["id"] == "row4") << text;
    }
    EXPECT_EQ(found, 12) << command;
  }
  EXPECT_EQ(run_lft(generate(run, "'A z?'")).code, 0);
  for (const char* more : {"", " --temperature 0.7 --top-k 3"})
    expect_named(run_lft(generate(run, "'A z?' --dtype fp16" + std::string(more))), "prompt");
}

/// train.grad_accum: auto gives steps of 4 rows here, by which the evaluation estimates the KL
/// divergence, too.
TEST(Eval, OfARunOfKtoRepeatsItsEvaluation) {
  const TinyRun run;
  recipe::Recipe recipe = run.recipe("out");
  recipe.objective.name = "kto";
  recipe.data.train = recipe.data.eval = write_labels(run);
  recipe.lora.dropout = 0;
  recipe.train.grad_accum = 0;
  recipe.train.global_batch = 32;
  recipe.train.eval_every_steps = 6;
  ASSERT_EQ(run_lft("train " + run.dir().write("run.yaml", dump_recipe(recipe))).code, 0);
  const Json expected = events(recipe.output_dir, "eval").back();
  const Ran ran = run_lft("eval --json " + recipe.output_dir);
  ASSERT_EQ(ran.code, 0) << ran.err;
  const Json got = Json::parse(ran.out.substr(ran.out.rfind('{')));
  EXPECT_EQ(got["loss"], expected["eval_loss"]);
  for (const char* name : {"kl", "reward_margin", "logps_chosen", "logps_rejected"})
    EXPECT_EQ(got[name], expected[name]) << name;
  EXPECT_GT(got["kl"].get<double>(), 0);
}

TEST(Eval, ARowWithoutAnAnswerHasNoneInItsLine) {
  const TinyRun run;
  const std::string rows =
      R"([{"id": "a", "conversations": [{"from": "human", "value": "What?"}, {"from": "gpt", )"
      R"("value": "red"}]},
                               {"id": "b", "conversations": [{"from": "human", "value": ")" +
      std::string(600, 'x') + R"("}, {"from": "gpt", "value": "red"}]}])";
  const Ran ran =
      run_lft("eval --max-new-tokens 2 --template llava-hf --model " + run.model() + " --data " +
              run.dir().write("cut.json", rows) + " --out " + run.dir().file("out.jsonl"));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(Json::parse(ran.out)["samples"], 2);
  EXPECT_NE(ran.err.find("1 of 2 rows have no answer within 512 tokens"), std::string::npos)
      << ran.err;
  const std::string lines = slurp(run.dir().file("out.jsonl"));
  const Json second = Json::parse(lines.substr(lines.find('\n') + 1));
  for (const char* key : {"answer", "exact", "loss"}) EXPECT_TRUE(second[key].is_null()) << key;
}

TEST(Eval, SkipsBadRowsAsTheRecipeSays) {
  const TinyRun run;
  recipe::Recipe recipe = run.recipe("out");
  nlohmann::json rows = nlohmann::json::parse(slurp(run.dir().file("rows.json")));
  rows[1]["image"] = "missing.bmp";
  recipe.data.eval = run.dir().write("eval.json", rows.dump());
  recipe.data.on_bad_sample = recipe::BadSampleRule::kSkip;
  recipe.train.max_steps = 4;
  const Ran trained = run_lft("train " + run.dir().write("run.yaml", dump_recipe(recipe)));
  ASSERT_EQ(trained.code, 0) << trained.err;
  const std::string eval = "eval --json --max-new-tokens 2 " + recipe.output_dir;
  const Ran ran = run_lft(eval);
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.count("skipped a bad sample: "), 1) << ran.err;
  EXPECT_EQ(Json::parse(ran.out.substr(ran.out.rfind('{')))["samples"], rows.size() - 1);
  EXPECT_EQ(run_lft(eval + " --set data.max_bad=0").code, 3);
  EXPECT_EQ(run_lft(eval + " --set data.on_bad_sample=error").code, 3);
}

}  // namespace
}  // namespace lft::infer_test
