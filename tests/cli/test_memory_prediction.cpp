// The predicted peak memory of a run and the one measured by the system, on a model of 63
// million parameters.
#include <gtest/gtest.h>

#include <vector>

#include "cli/run_lft.h"
#include "src/io/png_write.h"
#include "support/llava.h"
#include "train/run_files.h"

namespace lft::memory_prediction_test {
using namespace lft::io;
using namespace lft::family;
using namespace lft::llava;
using namespace lft::recipe;
namespace {

/// The run's `memory` event.
Json measured(const test::TempDir& dir, const Recipe& recipe, const std::string& name) {
  const test::Ran ran = test::run_lft("train " + dir.write(name + ".yaml", dump_recipe(recipe)));
  EXPECT_EQ(ran.code, 0) << ran.err;
  const std::vector<Json> events = test::events(recipe.output_dir, "memory");
  return events.size() == 1 ? events[0] : Json::object();
}

/// A LLaVA whose weights and activations dominate a process's memory, not its libraries.
class MemoryPrediction : public ::testing::Test {
 protected:
  static constexpr int64_t kElements = 1 << 16;

  MemoryPrediction() : run_(4) {
    Json config =
        test::TinyLlava{
            .dtype = DType::kBF16, .image_token = 260, .vocab = 32064, .max_positions = 512}
            .config();
    config["text_config"].update({{"hidden_size", 512},
                                  {"intermediate_size", 1376},
                                  {"num_hidden_layers", 8},
                                  {"num_attention_heads", 8},
                                  {"num_key_value_heads", 8}});
    config["vision_config"].update({{"hidden_size", 256},
                                    {"intermediate_size", 1024},
                                    {"num_hidden_layers", 6},
                                    {"num_attention_heads", 4},
                                    {"image_size", 224},
                                    {"patch_size", 14}});
    run_.dir().write("model/config.json", config.dump());
    write_weights(config);
    Json rows = Json::parse(test::slurp(run_.dir().file("rows.json")));
    for (size_t i = 0; i < rows.size(); ++i)
      rows[i]["conversations"][1]["value"] = std::string(60 + 30 * i, 'a');
    run_.dir().write("rows.json", rows.dump());
    // The report's answers need more than the steps: one row without an image.
    const Json one = {
        {"id", "one"},
        {"conversations",
         {{{"from", "human"}, {"value", "What?"}}, {{"from", "gpt"}, {"value", "grey"}}}}};
    one_row_ = run_.dir().write("one.json", Json::array({one}).dump());
  }

  /// Every tensor is a repetition of the same numbers.
  void write_weights(const Json& config) const {
    std::vector<TensorInfo> infos;
    for (const TensorSpec& spec : test::tensors_of(llava::parse_llava(config, "config"))) {
      TensorInfo info;
      info.name = spec.name;
      info.dtype = DType::kBF16;
      info.shape = spec.shape;
      infos.push_back(info);
    }
    const std::string block = test::random_tensor({kElements}, DType::kBF16, 1, 0, 0.04).bytes;
    SafetensorsWriter writer(run_.model() + "/model.safetensors", infos, {{"format", "pt"}});
    for (const TensorInfo& info : writer.order()) {
      int64_t bytes = 2;
      for (const int64_t size : info.shape) bytes *= size;
      std::string data;
      while (static_cast<int64_t>(data.size()) < bytes) data += block;
      writer.append(data.data(), static_cast<uint64_t>(bytes));
    }
    writer.finish();
  }

  Recipe recipe(const std::string& name, const std::string& dtype) const {
    Recipe recipe = run_.recipe(name);
    recipe.model.base_dtype = dtype, recipe.precision.compute = dtype;
    recipe.lora.rank = 16;
    recipe.lora.alpha = 32;
    recipe.data.eval = one_row_;
    recipe.optim.lr = 1e-4;
    recipe.train.max_steps = 2;
    recipe.train.worst_first = false;  // the steps contain the largest micro-batch anyway
    return recipe;
  }
  Json measured_of(const std::string& dtype, int64_t batch) const {
    const std::string name = dtype + std::to_string(batch);
    Recipe recipe = this->recipe(name, dtype);
    recipe.train.batch_size = batch;
    return measured(run_.dir(), recipe, name);
  }

  const test::TinyRun run_;
  std::string one_row_;
};

TEST_F(MemoryPrediction, IsWithinATenthOfTheMeasuredPeak) {
  // Without AVX-512, oneDNN multiplies BF16 in loops that take a hundred times as long.
  const bool fast_bf16 = __builtin_cpu_supports("avx512bw") != 0;
  std::vector<const char*> dtypes = {"fp32"};
  if (fast_bf16) dtypes.push_back("bf16");
  std::map<std::string, double> peaks;
  for (const char* dtype : dtypes) {
    for (const int64_t batch : {1, 4}) {
      const Json event = measured_of(dtype, batch);
      ASSERT_TRUE(event.contains("peak_bytes"));
      const double peak = event["peak_bytes"], predicted = event["predicted_bytes"];
      std::printf("%s, batch %lld: measured %.0f MB, predicted %.0f MB\n", dtype,
                  static_cast<long long>(batch), peak / 1e6, predicted / 1e6);
      EXPECT_NEAR(predicted, peak, 0.1 * peak) << dtype << " " << batch;
      peaks[dtype + std::to_string(batch)] = peak;
    }
  }
  // The compared values differ by much more than the tolerance.
  EXPECT_GT(peaks["fp324"], 1.5 * peaks["fp321"]);
  if (fast_bf16) {
    EXPECT_GT(peaks["fp324"], 1.5 * peaks["bf164"]);
  }
}

/// Every row shows one photograph, and the steps of a small model are short: workers decode
/// it nearly all the time.
TEST(MemoryOfImages, ThatAreReadIsCounted) {
  const test::TinyRun run(4);
  struct Photographs {
    int64_t width, height, workers;
  };
  for (const auto& [width, height, workers] :
       {Photographs{3000, 2400, 4}, {2000, 3000, 2}, {6000, 4000, 3}}) {
    const std::string name = "photo" + std::to_string(width) + "-" + std::to_string(workers);
    const RgbImage image{width, height, Pixels(static_cast<size_t>(3 * width * height), 77)};
    run.dir().write("images/photo.png", png_file(image));
    Json rows = Json::array();
    for (int i = 0; i < 24; ++i) {
      rows.push_back({{"id", std::to_string(i)},
                      {"image", "photo.png"},
                      {"conversations",
                       {{{"from", "human"}, {"value", "<image>\nWhat?"}},
                        {{"from", "gpt"}, {"value", "grey"}}}}});
    }
    Recipe recipe = run.recipe(name);
    recipe.data.train = run.dir().write("photos.json", rows.dump());
    recipe.data.workers = workers;
    recipe.train.batch_size = 4;
    recipe.train.max_steps = 6;
    const Json event = measured(run.dir(), recipe, name);
    ASSERT_TRUE(event.contains("peak_bytes"));
    const double peak = event["peak_bytes"], predicted = event["predicted_bytes"];
    std::printf("%s: measured %.0f MB, predicted %.0f MB\n", name.c_str(), peak / 1e6,
                predicted / 1e6);
    EXPECT_GE(predicted, peak) << name;
    EXPECT_LE(predicted, 1.1 * peak) << name;
  }
}

/// The module that decodes WebP takes 10 MB, before the steps.
TEST(MemoryOfImages, ExcludesTheWebpDecoder) {
  const test::TinyRun run(4);
  run.dir().write("images/photo.webp",
                  test::slurp(LFT_SOURCE_DIR "/tests/goldens/images/lossy.webp"));
  Json rows = Json::parse(test::slurp(run.dir().file("rows.json")));
  for (Json& row : rows) {
    if (row.contains("image")) row["image"] = "photo.webp";
  }
  Recipe recipe = run.recipe("webp");
  recipe.data.train = run.dir().write("rows.json", rows.dump());
  const Json event = measured(run.dir(), recipe, "webp");
  ASSERT_TRUE(event.contains("peak_bytes"));
  EXPECT_GE(event["predicted_bytes"].get<double>(), event["peak_bytes"].get<double>());
}

}  // namespace
}  // namespace lft::memory_prediction_test
