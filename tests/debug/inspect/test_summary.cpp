// Numbers of the summary against closed forms of the config; shapes against a real pass.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "models/base/call.h"
#include "models/loss_sum.h"
#include "models/ops/core/precision.h"
#include "src/data/batch.h"
#include "src/debug/inspect/summary.h"
#include "src/debug/inspect/summary_print.h"
#include "src/train/run/run.h"
#include "support/counting_allocator.h"
#include "support/expect_error.h"
#include "support/llava.h"
#include "train/tiny_run.h"

namespace lft::summary_test {
using namespace lft::clip;
using namespace lft::data;
using namespace lft::debug;
using namespace lft::hf;
using namespace lft::io;
using namespace lft::llama;
using namespace lft::family;
using namespace lft::llava;
using namespace lft::ops;
using namespace lft::recipe;
using namespace lft::train;
namespace {

using test::TinyRun;

const std::string kLayers = "language_model.model.layers.";

std::map<std::string, SummaryRow> by_path(const Summary& summary) {
  std::map<std::string, SummaryRow> rows;
  for (const SummaryRow& row : summary.rows) rows[row.path] = row;
  EXPECT_EQ(rows.size(), summary.rows.size());  // one row per module
  return rows;
}

/// Multiply-adds of a forward pass, from the config's numbers alone. `rows`: of the last layer's
/// output projection and MLP, and of the head; `rank`: of adapters on all linears of the language
/// model.
struct ClosedForm {
  family::ModelConfig config;
  int64_t batch, tokens, images, rows, rank = 0;

  int64_t linear(int64_t t, int64_t in, int64_t out) const {
    return t * in * out + t * rank * (in + out);
  }
  int64_t vision_layer() const {
    const clip::ClipConfig& v = test::vision_of(config);
    const int64_t s = v.grid() * v.grid() + 1;
    return images *
           (4 * s * v.hidden * v.hidden + 2 * s * s * v.hidden + 2 * s * v.hidden * v.intermediate);
  }
  int64_t patches() const {
    const clip::ClipConfig& v = test::vision_of(config);
    return images * v.grid() * v.grid() * v.channels * v.patch_size * v.patch_size * v.hidden;
  }
  int64_t projector() const {
    return images * test::positions_of(config) *
           (test::vision_of(config).hidden * config.text.hidden +
            config.text.hidden * config.text.hidden);
  }
  int64_t attention() const {
    return 2 * batch * tokens * tokens * config.text.heads * config.text.head_dim;
  }
  int64_t text_layer(int64_t kept) const {
    const LlamaConfig& c = config.text;
    const int64_t all = batch * tokens, q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
    return linear(all, c.hidden, q) + 2 * linear(all, c.hidden, kv) + attention() +
           linear(kept, q, c.hidden) + 2 * linear(kept, c.hidden, c.intermediate) +
           linear(kept, c.intermediate, c.hidden);
  }
  int64_t head() const { return rows * config.text.hidden * config.text.vocab; }
  int64_t total(int64_t vision_layers) const {
    return patches() + vision_layers * vision_layer() + projector() +
           (config.text.layers - 1) * text_layer(batch * tokens) + text_layer(rows) + head();
  }
};

int64_t stored_parameters(const family::ModelConfig& config) {
  int64_t total = 0;
  for (const TensorSpec& spec : test::tensors_of(config)) {
    int64_t count = 1;
    for (const int64_t size : spec.shape) count *= size;
    total += count;
  }
  return total;
}

TEST(Summary, AModelDirectoryByItsConfig) {
  test::TempDir temp;
  const ModelDir dir =
      ModelDir::open(test::write_tiny_llava(temp.file("model"), {.dtype = DType::kBF16}));
  const Summary summary = summarize_model(dir, {.batch = 3, .tokens = 50});
  const ClosedForm form{.config = dir.config, .batch = 3, .tokens = 50, .images = 3, .rows = 150};
  EXPECT_EQ(summary.batch, "3 rows of 50 tokens, 3 images");
  EXPECT_EQ(summary.multiply_adds,
            form.total(/*vision_layers=*/2));  // 2 of 3 layers: the feature layer is -2
  EXPECT_EQ(summary.parameters, stored_parameters(dir.config));
  EXPECT_EQ(summary.parameter_bytes, 2 * summary.parameters);
  EXPECT_EQ(summary.trainable, 0);

  const auto rows = by_path(summary);
  const SummaryRow& k = rows.at(kLayers + "1.self_attn.k_proj");
  EXPECT_EQ(k.type, "Linear");
  EXPECT_EQ(k.input, "[3, 50, 32]");
  EXPECT_EQ(k.output, "[3, 50, 16]");
  EXPECT_EQ(k.multiply_adds, 150 * 32 * 16);
  EXPECT_EQ(k.output_bytes, 150 * 16 * 4);
  EXPECT_EQ(k.parameter_bytes, 32 * 16 * 2);
  EXPECT_EQ(k.dtype, "BF16");
  EXPECT_EQ(rows.at(kLayers + "0.self_attn").multiply_adds, form.attention());
  EXPECT_EQ(rows.at("language_model.lm_head").multiply_adds, form.head());
  EXPECT_EQ(rows.at("vision_tower.vision_model.embeddings.patch_embedding").multiply_adds,
            form.patches());
  EXPECT_EQ(rows.at("vision_tower.vision_model.encoder.layers.2").type, "(not used)");
  EXPECT_EQ(rows.at("multi_modal_projector.linear_2").output, "[3, 16, 32]");
}

TEST(Summary, TextAloneWhereAnImageHasNoRoom) {
  test::TempDir temp;
  const ModelDir dir = ModelDir::open(test::write_tiny_llava(temp.file("model")));
  const Summary summary = summarize_model(
      dir, {.batch = 1, .tokens = 17});  // 16 image positions and two tokens need 18
  EXPECT_EQ(summary.batch, "1 row of 17 tokens, no image");
  EXPECT_EQ(summary.multiply_adds, (ClosedForm{dir.config, 1, 17, 0, 17}.total(0)));
  EXPECT_EQ(summarize_model(dir, {}).batch, "1 row of 40 tokens, 1 image");
}

/// LLaVA-1.5 7B at its full context: shapes and counts need only its config and little memory.
TEST(Summary, SevenBillionParametersWithoutTheirMemory) {
  test::TempDir temp;
  temp.write("config.json",
             R"({"model_type": "llava", "image_token_index": 32000, "vision_feature_layer": -2, )"
             R"("torch_dtype": "float16",
    "text_config": {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, )"
             R"("num_hidden_layers": 32,
                    "num_attention_heads": 32, "vocab_size": 32064, )"
             R"("max_position_embeddings": 4096},
    "vision_config": {"model_type": "clip_vision_model", "hidden_size": 1024, )"
             R"("intermediate_size": 4096, "num_hidden_layers": 24,
                      "num_attention_heads": 16, "image_size": 336, "patch_size": 14}})");
  const ModelDir dir = ModelDir::config_only(temp.path());
  const test::CountingAllocator counting;
  test::CountingAllocator::reset_peak();
  const int64_t before = test::CountingAllocator::live();
  const Summary summary = summarize_model(dir, {.batch = 8, .tokens = 4096});
  EXPECT_LT(test::CountingAllocator::peak() - before, 32 << 20);
  EXPECT_EQ(summary.multiply_adds, (ClosedForm{dir.config, 8, 4096, 8, 8 * 4096}.total(23)));
  EXPECT_EQ(by_path(summary).at(kLayers + "31.mlp.down_proj").input,
            "[8, 4096, 11008] [8, 4096, 11008]");
}

TEST(Summary, ARunWithItsAdapters) {
  const TinyRun tiny;
  const Summary summary = summarize_run(tiny.recipe("out"), {.batch = 2, .tokens = 40});
  const family::ModelConfig config = ModelDir::open(tiny.model()).config;
  // Supervised positions follow the first token and the 16 image positions; the row before each is
  // kept.
  const ClosedForm form{
      .config = config, .batch = 2, .tokens = 40, .images = 2, .rows = 2 * 23, .rank = 4};
  const ClosedForm vision{.config = config, .batch = 2, .tokens = 40, .images = 2, .rows = 0};
  EXPECT_EQ(summary.multiply_adds, form.total(2) - form.projector() + vision.projector());
  const auto rows = by_path(summary);
  EXPECT_EQ(rows.at("language_model.lm_head").multiply_adds, form.head());
  EXPECT_EQ(rows.at(kLayers + "1.self_attn").multiply_adds, form.attention());

  const SummaryRow& up = rows.at(kLayers + "0.mlp.up_proj");
  EXPECT_EQ(up.type, "Linear+LoraAdapter");
  EXPECT_EQ(up.trainable, 4 * (32 + 48));
  EXPECT_EQ(up.parameters, 32 * 48 + up.trainable);
  EXPECT_EQ(up.multiply_adds, 80 * 32 * 48 + 80 * 4 * (32 + 48));
  const int64_t adapters =
      2 * 4 * ((32 + 32) + 2 * (32 + 16) + (32 + 32) + 2 * (32 + 48) + (48 + 32));
  const int64_t projector = 24 * 32 + 32 + 32 * 32 + 32;
  EXPECT_EQ(summary.trainable, adapters + projector);
  EXPECT_EQ(summary.parameters, stored_parameters(config) + adapters);
  EXPECT_EQ(rows.at("multi_modal_projector.linear_1").trainable, 24 * 32 + 32);
}

/// Path and shapes of every call in a real pass.
class Shapes : public CallObserver {
 public:
  void before(const std::string& path, const torch::nn::Module&,
              const std::vector<at::Tensor>& inputs) override {
    for (const at::Tensor& input : inputs)
      this->inputs[path] += (this->inputs[path].empty() ? "" : " ") + c10::str(input.sizes());
  }
  void after(const std::string& path, const torch::nn::Module&,
             const std::vector<at::Tensor>& outputs) override {
    for (const at::Tensor& output : outputs) {
      this->outputs[path] += (this->outputs[path].empty() ? "" : " ") + c10::str(output.sizes());
      bytes[path] += static_cast<int64_t>(output.nbytes());
    }
  }
  std::map<std::string, std::string> inputs, outputs;
  std::map<std::string, int64_t> bytes;
};

TEST(Summary, TheRunsFirstBatchHasTheShapesOfARealPass) {
  const TinyRun tiny;
  for (const auto& [compute, budget] :
       std::map<std::string, int64_t>{{"fp32", 0}, {"bf16", 0}, {"fp32 packed", 600}}) {
    SCOPED_TRACE(compute);
    Recipe recipe = tiny.recipe("out");
    recipe.precision.compute = compute.substr(0, 4);
    recipe.train.max_tokens_per_step = budget;
    const Summary summary = summarize_run(recipe, {});
    lft::train::Run run = make_run(open_inputs(recipe));
    const std::vector<Sample> samples = start_loader(run, 0)->next().micro[0];
    const family::Batch batch = budget > 0 ? pack(samples, run.data.encode, at::kCPU)
                                           : collate(samples, run.data.encode, at::kCPU);
    Shapes real;
    {
      const at::NoGradGuard no_grad;
      const ObserveCalls observe(real);
      const ComputeDtypeGuard guard(run.state.compute);
      test::loss_sum(run.model.model, batch);
    }
    EXPECT_EQ(summary.batch, (budget > 0 ? "1 row of " : "4 rows of ") +
                                 std::to_string(batch.input_ids_bt.size(1)) + " tokens, 4 images");
    EXPECT_EQ(summary.parameters, run.model.parameters);
    EXPECT_EQ(summary.trainable, run.model.trainable_parameters);
    const auto rows = by_path(summary);
    for (const auto& [path, output] : real.outputs) {
      ASSERT_TRUE(rows.contains(path)) << path;
      EXPECT_EQ(rows.at(path).output, output) << path;
      EXPECT_EQ(rows.at(path).input, real.inputs[path]) << path;
      EXPECT_EQ(rows.at(path).output_bytes, real.bytes[path]) << path;
    }
    EXPECT_GT(real.outputs.size(), 40u);
  }
}

TEST(Summary, ActivationsAreTheOutputsOfLeavesTwice) {
  test::TempDir temp;
  const Summary summary =
      summarize_model(ModelDir::open(test::write_tiny_llava(temp.file("model"))), {});
  int64_t expected = 0;
  for (const SummaryRow& row : summary.rows) {
    const auto inside = [&](const SummaryRow& other) {
      return other.path.starts_with(row.path + ".");
    };
    // A row outside any other's path: the embedding and the head run under their full names.
    if (std::none_of(summary.rows.begin(), summary.rows.end(), inside))
      expected += 2 * row.output_bytes;
  }
  EXPECT_EQ(summary.activation_bytes, expected);
}

TEST(Summary, LinesOfTheTableAndTotals) {
  const TinyRun tiny;
  const std::vector<std::string> lines =
      summary_lines(summarize_run(tiny.recipe("out"), {.batch = 1, .tokens = 40}));
  EXPECT_TRUE(lines[0].starts_with("layer ") && lines[0].ends_with("parameters  dtype"))
      << lines[0];
  const auto with = [&](const std::string& start) {
    const auto line = std::find_if(lines.begin(), lines.end(), [&](const std::string& text) {
      return text.starts_with(start);
    });
    return line == lines.end() ? "" : *line;
  };
  EXPECT_NE(with(kLayers + "0.mlp.up_proj").find("[1, 40, 32]"), std::string::npos);
  EXPECT_NE(with(kLayers + "0.mlp.up_proj").find("7.7 kB"), std::string::npos);  // 40 * 48 floats
  EXPECT_NE(with(kLayers + "1 "), "");  // the last one computes the supervised positions alone
  EXPECT_NE(with("trainable: ").find(" parameters, "), std::string::npos);
  EXPECT_EQ(
      with("batch: "),
      "batch: 1 row of 40 tokens, 1 image, 3.4 kB");  // 40 ids of eight bytes, 3 * 16 * 16 floats
  EXPECT_FALSE(with("forward/backward pass: ").empty());
  EXPECT_FALSE(with("estimated total: ").empty());
}

/// Layers that differ in a count get separate rows, and every column still adds up.
TEST(Summary, OnlyEqualLayersInARowAreOne) {
  Summary summary;
  const auto add = [&](const std::string& path, int64_t parameters) {
    summary.rows.push_back(
        {.path = path, .type = "Linear", .input = "-", .output = "-", .parameters = parameters});
    summary.parameters += parameters;
  };
  add("embed", 5);
  for (int layer = 0; layer < 12; ++layer) {
    add("llm.layers." + std::to_string(layer), 0);
    add("llm.layers." + std::to_string(layer) + ".q", layer == 7 ? 3 : 2);
  }
  add("llm.norm", 1);
  add("vision.layers.0.q", 4);
  std::vector<std::string> paths;
  for (const std::string& line : summary_lines(summary)) {
    if (line.empty()) break;
    paths.push_back(line.substr(0, line.find(' ')));
  }
  EXPECT_EQ(paths,
            (std::vector<std::string>{"layer", "embed", "llm.layers.0-6", "llm.layers.0-6.q",
                                      "llm.layers.7", "llm.layers.7.q", "llm.layers.8-11",
                                      "llm.layers.8-11.q", "llm.norm", "vision.layers.0.q"}));
  EXPECT_NE(summary_lines(summary)[3].find(" 14  "), std::string::npos)
      << summary_lines(summary)[3];
}

TEST(Summary, ImpossibleBatches) {
  const TinyRun tiny;
  const ModelDir dir = ModelDir::open(tiny.model());
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "2 to 512 tokens", summarize_model(dir, {.tokens = 513}));
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "--batch, --tokens", summarize_model(dir, {.batch = -1}));
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "1 tokens", summarize_run(tiny.recipe("out"), {.tokens = 1}));
  EXPECT_FALSE(path_exists(tiny.recipe("out").output_dir));  // writes nothing
}

}  // namespace
}  // namespace lft::summary_test
