// A tiny random LLaVA with random samples, prepared so that no image is decoded, and runs of it on
// a given device.
#pragma once
#include <map>
#include <random>
#include <string>
#include <vector>

#include "src/data/prepared.h"
#include "src/data/prepared_write.h"
#include "src/hf/model_dir.h"
#include "src/train/run/rehearsal.h"
#include "src/train/run/run.h"
#include "support/llava.h"
#include "train/run_files.h"
#include "train/tiny_run.h"

namespace lft::test {
using namespace lft::data;
using namespace lft::hf;
using namespace lft::family;
using namespace lft::llava;
using namespace lft::recipe;
using namespace lft::text;
using namespace lft::train;

/// Rows of different lengths: no, one or two images; a question and an answer.
class DrawnRows : public Dataset {
 public:
  DrawnRows(int64_t rows, const family::ModelConfig& config, int64_t text)
      : rows_(rows), text_(text), config_(config) {}
  int64_t size() const override { return rows_; }
  std::string id(int64_t index) const override { return "row" + std::to_string(index); }
  std::vector<std::string> image_paths(int64_t) const override { return {}; }
  Row row(int64_t index) const override {
    const std::vector<std::string> images(static_cast<size_t>(images_of(index)), "drawn");
    return {.id = id(index),
            .where = "drawn",
            .conversation = {text::messages_of({{"?", "!"}})},
            .images = images};
  }
  std::string hash() const override { return "drawn"; }
  Sample get(int64_t index) const override {
    std::mt19937_64 random(static_cast<uint64_t>(index) + 1);
    Sample sample{.id = id(index), .input_ids = {1}, .labels = {}, .images = {}};
    for (int64_t image = 0; image < images_of(index); ++image) {
      sample.input_ids.insert(sample.input_ids.end(), static_cast<size_t>(positions_of(config_)),
                              config_.image_token);
      const int64_t size = vision_of(config_).image_size;
      PixelImage pixels{.shape = {.height = size, .width = size}};
      pixels.positions = positions_of(config_);
      pixels.tower_positions = vision_of(config_).grid() * vision_of(config_).grid() + 1;
      for (int64_t i = 0; i < pixels.shape.values(); ++i)
        pixels.chw.push_back(static_cast<uint8_t>(random()));
      sample.images.push_back(std::move(pixels));
    }
    const int64_t question = 2 + index % 5, answer = text_ + index * 7 % 11;
    for (int64_t i = 0; i < question + answer; ++i)
      sample.input_ids.push_back(3 + static_cast<int64_t>(random() % 200));
    sample.labels = sample.input_ids;
    std::fill(sample.labels.begin(), sample.labels.end() - answer, -100);
    return sample;
  }
  int64_t images_of(int64_t index) const override { return (index + 1) % 3; }

 private:
  int64_t rows_, text_;
  family::ModelConfig config_;
};

class ShardRun {
 public:
  explicit ShardRun(int64_t rows = 12, int64_t text = 6) : files_(/*rows=*/0), max_tokens_(96) {
    prepare(rows, text);
  }
  /// With another config.json (random weights: model.init random), or other weights.
  ShardRun(const nlohmann::json& config, int64_t rows, int64_t text)
      : files_(/*rows=*/0), max_tokens_(2048) {
    files_.dir().write("model/config.json", config.dump());
    prepare(rows, text);
  }
  void write_weights(const std::function<void(StoredTensors&)>& change) {
    write_tiny_llava(files_.model(), {.image_token = 260, .vocab = 264, .max_positions = 512},
                     change);
  }
  std::string file(const std::string& name) const { return files_.dir().file(name); }
  Recipe recipe(const std::string& out) const {
    Recipe recipe = files_.recipe(out);
    recipe.data.train = file("shards");
    recipe.data.max_tokens = max_tokens_;
    recipe.data.eval.clear();
    recipe.data.image_root.clear();
    recipe.lora.dropout = 0;
    recipe.checkpoint.every_steps = 1000;
    return recipe;
  }

 private:
  void prepare(int64_t rows, int64_t text) {
    const family::ModelConfig config = ModelDir::config_only(files_.model()).config;
    const std::unique_ptr<Tokenizer> tokenizer = Tokenizer::load(files_.model());
    std::string remark;
    const Recipe recipe = files_.recipe("unused");
    const EncodeOptions options = encode_options(
        files_.model(), config, *tokenizer,
        {{recipe.data.chat_template, recipe.data.image_fit.word()}, max_tokens_}, &remark);
    prepare_dataset(DrawnRows(rows, config, text), options, file("shards"));
  }

  TinyRun files_;
  int64_t max_tokens_;
};

/// The results of some steps of a recipe.
struct Trace {
  std::vector<double> losses, norms;                // one per step
  std::map<std::string, at::Tensor> before, after;  // the trained tensors, on the CPU

  double mean_difference(const Trace& other) const {
    double sum = 0;
    for (size_t i = 0; i < losses.size(); ++i) sum += std::abs(losses[i] - other.losses.at(i));
    return sum / static_cast<double>(losses.size());
  }
  /// |after - other.after| relative to the distance that the other moved.
  double distance(const Trace& other) const {
    double apart = 0, way = 0;
    for (const auto& [name, tensor] : after) {
      apart += (tensor - other.after.at(name)).square().sum().item<double>();
      way += (other.after.at(name) - other.before.at(name)).square().sum().item<double>();
    }
    return std::sqrt(apart / way);
  }
};

inline Trace run_on(at::Device device, const Recipe& recipe) {
  RunInputs inputs = open_inputs(recipe);
  inputs.device = device;
  Run run = make_run(std::move(inputs));
  Trace trace;
  const auto note = [&](std::map<std::string, at::Tensor>& into) {
    for (const Slot& slot : run.optimizer.slots())
      into[slot.param.name] = slot.param.tensor.detach().cpu().to(at::kDouble);
  };
  note(trace.before);
  const std::unique_ptr<Loader> loader = start_loader(run, 0);
  for (int64_t step = 0; step < run.total_steps; ++step) {
    const StepOutcome outcome =
        train_step({run.model.model, run.optimizer, run.scaler, run.schedule},
                   run_step_options(run), loader->next(), run.state);
    EXPECT_EQ(outcome.result, StepResult::kTaken) << outcome.reason;
    trace.losses.push_back(outcome.loss);
    trace.norms.push_back(outcome.stats.norm);
  }
  note(trace.after);
  return trace;
}

}  // namespace lft::test
