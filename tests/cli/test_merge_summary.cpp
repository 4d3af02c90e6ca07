#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "hf/support.h"
#include "src/cli/commands.h"
#include "src/cli/merge_probe.h"
#include "src/io/json.h"
#include "train/tiny_run.h"

namespace lft::merge_summary_test {
using namespace lft::hf;
using namespace lft::io;
using namespace lft::family;
using namespace lft::llava;
using namespace lft::recipe;
namespace {

using namespace test;

std::string run(void (*add)(cli::Command&), const std::vector<std::string>& arguments) {
  ::testing::internal::CaptureStdout();
  try {
    cli::run_command_line(arguments, add, [] { return std::string(); });
  } catch (...) {
    ::testing::internal::GetCapturedStdout();
    throw;
  }
  return ::testing::internal::GetCapturedStdout();
}

TEST(CompareLogits, KnownDistributions) {
  const at::Tensor want = at::tensor({0.5f, 0.5f, 0.25f, 0.75f}).log().view({2, 2});
  at::Tensor got = at::tensor({0.25f, 0.75f, 0.25f, 0.75f}).log().view({2, 2});
  const cli::ProbeDifference difference = cli::compare_logits(want, got);
  EXPECT_EQ(difference.positions, 2);
  EXPECT_NEAR(difference.mean_kl, 0.5 * (0.5 * std::log(2.0) + 0.5 * std::log(2.0 / 3.0)), 1e-7);
  EXPECT_NEAR(difference.max_abs, std::log(2.0), 1e-6);
  EXPECT_NEAR(difference.top1_agreement, 0.5, 1e-12);
  EXPECT_NEAR(difference.largest_logit, std::log(4.0), 1e-6);
  got[0][0] = NAN;
  EXPECT_FALSE(cli::compare_logits(want, got).max_abs < 1e30);
}

TEST(MergeCommand, WritesTheFiguresAndOneLine) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    TempDir temp;
    const std::string base = write_tiny_llava(temp.file("base"), {.dtype = dtype, .shards = 2});
    TinyAdapter adapter = adapter_in("d3");
    adapter.config["base_model_name_or_path"] = base;  // so that --model is not needed
    adapter.write(temp.file("adapter"));
    const std::string line = run(
        cli::add_merge, {"merge", "--adapter", temp.file("adapter"), "--out", temp.file("out")});
    EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
    EXPECT_NE(line.find("merged 5 tensors (2 files)"), std::string::npos) << line;
    const Json report = read_json_file(temp.file("out") + "/merge_report.json");
    EXPECT_LE(report["max_abs_diff"].get<double>(), report["bound"]["max_abs_diff"].get<double>());
    EXPECT_LE(report["mean_kl"].get<double>(), report["bound"]["mean_kl"].get<double>());
    EXPECT_GT(report["top1_agreement"].get<double>(), 0.9);
    EXPECT_EQ(report["stored_dtype"], dtype_name(dtype));
    EXPECT_EQ(report["positions"], 10 + 5 + 5 + 5);
  }
}

/// The merged tensors round to their own dtype, which may be another than that of most weights.
TEST(MergeCommand, TheBoundIsThatOfTheMergedTensors) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    TempDir temp;
    const StoredTensors coarse = tiny_llava_tensors({.dtype = dtype});
    const std::string base = write_tiny_llava(temp.file("base"), {}, [&](StoredTensors& tensors) {
      for (const char* module : {"0.self_attn.q_proj", "1.self_attn.v_proj", "1.mlp.down_proj"}) {
        const std::string name = "language_model.model.layers." + std::string(module) + ".weight";
        tensors[name] = coarse.at(name);
      }
    });
    EXPECT_EQ(ModelDir::open(base).stored_dtype, DType::kF32);
    adapter_in("d2").write(temp.file("adapter"));
    run(cli::add_merge,
        {"merge", "--adapter", temp.file("adapter"), "--model", base, "--out", temp.file("out")});
    const Json report = read_json_file(temp.file("out") + "/merge_report.json");
    EXPECT_EQ(report["stored_dtype"], dtype_name(dtype));
    EXPECT_EQ(report["bound"]["mean_kl"], cli::rounding_bound(dtype).mean_kl);
  }
}

/// Fully saved linear layers of the decoder, and LoRA on others: the merge is right, and
/// a merge that omits any of them is detected.
TEST(MergeCommand, AWholeDecoderLayerIsMergedAndLeavingItOutIsFound) {
  const std::string layer = "language_model.model.layers.0.";
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    TempDir temp;
    const std::string base = write_tiny_llava(temp.file("base"), {.dtype = dtype});
    TinyAdapter adapter = adapter_in("d2");
    adapter.full = {{"model.language_model.layers.0.self_attn.o_proj.weight", {32, 32}},
                    {"model.language_model.layers.1.self_attn.o_proj.weight", {32, 32}},
                    {"model.language_model.layers.0.mlp.up_proj.weight", {48, 32}},
                    {"model.language_model.layers.1.mlp.up_proj.weight", {48, 32}}};
    adapter.config["modules_to_save"] = {"o_proj", "up_proj"};
    adapter.write(temp.file("adapter"));
    run(cli::add_merge,
        {"merge", "--adapter", temp.file("adapter"), "--model", base, "--out", temp.file("out")});
    const cli::Probed want = cli::probe_folder(base, temp.file("adapter"), at::kCPU);
    const auto is_right = [&](const std::string& model) {
      return cli::within(
          cli::compare_logits(want.logits_kv, cli::probe_folder(model, "", at::kCPU).logits_kv),
          cli::rounding_bound(dtype));
    };
    EXPECT_TRUE(is_right(temp.file("out")));
    const SafetensorsFile plain(base + "/model.safetensors"),
        merged(temp.file("out") + "/model.safetensors");
    for (const char* left_out : {"self_attn.o_proj", "mlp.up_proj", "self_attn.q_proj"}) {
      StoredTensors tensors;
      for (const auto& [name, info] : merged.tensors()) {
        const SafetensorsFile& from = name == layer + left_out + ".weight" ? plain : merged;
        tensors[name] = {info.dtype, info.shape, std::string(info.bytes, '\0')};
        from.read(from.info(name), tensors[name].bytes.data());
      }
      write_safetensors(temp.file("out") + "/model.safetensors", tensors);
      EXPECT_FALSE(is_right(temp.file("out"))) << left_out << " " << dtype_name(dtype);
    }
  }
}

TEST(MergeCommand, BaseMustBeFound) {
  TempDir temp;
  TinyAdapter adapter = adapter_in("d2");
  adapter.config["base_model_name_or_path"] = temp.file("moved");
  adapter.write(temp.file("adapter"));
  EXPECT_LFT_ERROR(
      ErrorKind::kUsage, "give --model DIR",
      run(cli::add_merge, {"merge", "--adapter", temp.file("adapter"), "--out", temp.file("o")}));
}

TEST(ExportCommand, OnlyPeftHasDialects) {
  TempDir temp;
  const std::string base = write_tiny_llava(temp.file("base"));
  adapter_in("d2").write(temp.file("adapter"));
  for (const char* target : {"vllm", "sglang", "gguf"}) {
    EXPECT_LFT_ERROR(
        ErrorKind::kUsage, "only an export for PEFT has a choice of names",
        run(cli::add_export, {"export", temp.file("adapter"), "--model", base, "--target", target,
                              "--dialect", "d3", "--out", temp.file(target)}));
    EXPECT_FALSE(path_exists(temp.file(target)));
  }
}

TEST(SummaryCommand, RowsAndTotals) {
  TempDir temp;
  const std::string base = write_tiny_llava(temp.file("base"), {.dtype = DType::kBF16});
  const std::string text = run(cli::add_summary, {"summary", base});
  EXPECT_NE(text.find("language_model.model.layers.0-1.self_attn.k_proj "), std::string::npos)
      << text;
  EXPECT_NE(text.find("(not used)"),
            std::string::npos);  // the last vision layer, with vision_feature_layer -2
  int64_t total = 0, listed = 0;
  for (const TensorSpec& spec : tensors_of(ModelDir::open(base).config)) {
    int64_t count = 1;
    for (const int64_t size : spec.shape) count *= size;
    total += count;
  }
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line) && !line.empty();) {
    std::istringstream words(line);
    std::vector<std::string> all;
    for (std::string word; words >> word;) all.push_back(word);
    std::string& number = all[all.size() - 2];
    number.erase(std::remove(number.begin(), number.end(), ','), number.end());
    if (all.back() == "BF16") listed += std::stoll(number);
  }
  EXPECT_EQ(listed, total);
  EXPECT_NE(text.find(", 73.2 kB as stored"), std::string::npos)
      << text;  // 36,592 parameters of two bytes
}

TEST(SummaryCommand, BatchOfTheCommandLine) {
  TempDir temp;
  const std::string base = write_tiny_llava(temp.file("base"));
  const std::string text =
      run(cli::add_summary, {"summary", base, "--batch", "2", "--tokens", "30"});
  EXPECT_NE(text.find("batch: 2 rows of 30 tokens, 2 images"), std::string::npos) << text;
  EXPECT_NE(text.find("[2, 30, 32]"), std::string::npos) << text;
  EXPECT_EQ(text.find("trainable: "), std::string::npos) << text;
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "--set needs a recipe",
                   run(cli::add_summary, {"summary", base, "--set", "lora.rank=2"}));
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "2 to 128 tokens",
                   run(cli::add_summary, {"summary", base, "--tokens", "129"}));
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "--batch",
                   run(cli::add_summary, {"summary", base, "--batch", "0"}));
}

TEST(SummaryCommand, ARecipesTrainableColumn) {
  const TinyRun tiny;
  write_file_atomic(tiny.dir().file("run.yaml"), dump_recipe(tiny.recipe("out")));
  const std::string text =
      run(cli::add_summary, {"summary", tiny.dir().file("run.yaml"), "--set", "lora.rank=2"});
  EXPECT_NE(text.find("Linear+LoraAdapter"), std::string::npos) << text;
  // Rank 2 on the two layers' linears, and the projector: 2 * 2 * (32 + 32 + 2 * (32 + 16) + 32 +
  // 32 + 3 * (32 + 48)) + 1856.
  EXPECT_NE(text.find("trainable: 3,712 parameters, "), std::string::npos) << text;
}

}  // namespace
}  // namespace lft::merge_summary_test
