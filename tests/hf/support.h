// Shared helpers of this folder's tests: a probe batch, a random PEFT adapter on disk.
#pragma once
#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/lora/inject.h"
#include "src/hf/adapter/adapter.h"
#include "src/hf/weights_load.h"
#include "support/expect_error.h"
#include "support/llava.h"
#include "support/temp_dir.h"
#include "support/tiny_llava.h"

namespace lft::test {
using namespace lft::hf;
using namespace lft::io;
using namespace lft::family;
using namespace lft::llava;
using namespace lft::lora;

/// One row: BOS, the image's positions, then a few fixed ids.
inline family::Batch probe_batch(const family::ModelConfig& config) {
  std::vector<int64_t> ids = {1};
  ids.insert(ids.end(), positions_of(config), config.image_token);
  for (const int64_t id : {7, 11, 13, 29, 5, 41}) ids.push_back(id);
  const auto count = static_cast<int64_t>(ids.size());
  std::mt19937_64 random(5);
  std::vector<float> pixels(3 * vision_of(config).image_size * vision_of(config).image_size);
  for (float& pixel : pixels)
    pixel = static_cast<float>(static_cast<double>(random() >> 11) * 0x1p-52 - 1.0);
  family::Batch batch;
  batch.input_ids_bt = at::tensor(ids, at::kLong).view({1, count});
  batch.lengths_b = at::tensor(std::vector<int64_t>{count}, at::kLong);
  batch.pixels = at::tensor(pixels, at::kFloat)
                     .view({1, 3, vision_of(config).image_size, vision_of(config).image_size});
  return batch;
}

inline at::Tensor logits_of(Model& model) {
  const at::NoGradGuard no_grad;
  return model->all_logits(probe_batch(model->config));
}

/// Full keys after "base_model.model.", as in PEFT's dialect under test.
struct TinyAdapter {
  std::map<std::string, std::vector<int64_t>> lora;  // module -> {in, out}
  std::map<std::string, std::vector<int64_t>> full;  // tensor -> shape
  int64_t rank = 2;
  nlohmann::json config = {
      {"peft_type", "LORA"}, {"task_type", "CAUSAL_LM"}, {"r", 2},
      {"lora_alpha", 3},     {"target_modules", ".*"},   {"base_model_name_or_path", "base"}};

  StoredTensors tensors() const {
    StoredTensors out;
    uint64_t seed = 900;
    for (const auto& [module, sides] : lora) {
      out["base_model.model." + module + ".lora_A.weight"] =
          random_tensor({rank, sides[0]}, DType::kF32, ++seed, 0, 0.3);
      out["base_model.model." + module + ".lora_B.weight"] =
          random_tensor({sides[1], rank}, DType::kF32, ++seed, 0, 0.3);
    }
    for (const auto& [name, shape] : full)
      out["base_model.model." + name] = random_tensor(shape, DType::kF32, ++seed, 0, 0.2);
    return out;
  }
  std::string write(const std::string& dir,
                    const std::function<void(StoredTensors&)>& change = nullptr) const {
    make_dirs(dir);
    StoredTensors stored = tensors();
    if (change) change(stored);
    write_safetensors(dir + "/adapter_model.safetensors", stored);
    write_file_atomic(dir + "/adapter_config.json", config.dump(2));
    return dir;
  }
};

/// LoRA on the language model, the projector and the vision tower, in a dialect of PEFT's keys.
inline TinyAdapter adapter_in(const std::string& dialect) {
  const std::string llm = dialect == "d1" ? "language_model.model." : "model.language_model.";
  const std::string top = dialect == "d1" ? "" : "model.";
  const std::string clip = dialect == "d3" ? "vision_tower." : "vision_tower.vision_model.";
  TinyAdapter adapter;
  adapter.lora = {{llm + "layers.0.self_attn.q_proj", {32, 32}},
                  {llm + "layers.1.self_attn.v_proj", {32, 16}},
                  {llm + "layers.1.mlp.down_proj", {48, 32}},
                  {top + "multi_modal_projector.linear_1", {24, 32}},
                  {top + clip + "encoder.layers.0.mlp.fc1", {24, 40}}};
  return adapter;
}

inline std::map<std::string, std::vector<int64_t>> projector_tensors() {
  const std::string prefix = "model.multi_modal_projector.";
  return {{prefix + "linear_1.weight", {32, 24}},
          {prefix + "linear_1.bias", {32}},
          {prefix + "linear_2.weight", {32, 32}},
          {prefix + "linear_2.bias", {32}}};
}

inline Model load_tiny(const std::string& dir, at::ScalarType dtype = at::kFloat) {
  return load_model(ModelDir::open(dir), dtype, at::kCPU);
}

}  // namespace lft::test
