// A random LLaVA of a few thousand parameters as an HF folder: config.json and safetensors, seeded,
// in any layout a test asks for. No tokenizer.
#pragma once
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "src/io/files.h"
#include "src/io/safetensors.h"
#include "support/llava.h"

namespace lft::test {
using namespace lft::io;
using namespace lft::family;
using namespace lft::llava;

/// The prefix of the decoder layers' names.
inline const std::string kLayers = "language_model.model.layers.";

struct TinyLlava {
  uint64_t seed = 1;
  DType dtype = DType::kF32;
  int shards = 1;
  bool new_clip_names =
      false;  // without "vision_model.", as in models written by transformers >= 5.6
  bool tied = false;
  int64_t image_token = 60, vocab = 64, max_positions = 128, intermediate = 48;
  double spread = 0.15;  // standard deviation of the weights; norms are 1 + as much

  nlohmann::json config() const {
    return {{"architectures", {"LlavaForConditionalGeneration"}},
            {"model_type", "llava"},
            {"image_token_index", image_token},
            {"torch_dtype", dtype == DType::kF32   ? "float32"
                            : dtype == DType::kF16 ? "float16"
                                                   : "bfloat16"},
            {"tie_word_embeddings", tied},
            {"vision_feature_layer", -2},
            {"vision_feature_select_strategy", "default"},
            {"text_config",
             {{"model_type", "llama"},
              {"hidden_size", 32},
              {"intermediate_size", intermediate},
              {"num_hidden_layers", 2},
              {"num_attention_heads", 4},
              {"num_key_value_heads", 2},
              {"vocab_size", vocab},
              {"max_position_embeddings", max_positions},
              {"rms_norm_eps", 1e-5},
              {"tie_word_embeddings", tied}}},
            {"vision_config",
             {{"model_type", "clip_vision_model"},
              {"hidden_size", 24},
              {"intermediate_size", 40},
              {"num_hidden_layers", 3},
              {"num_attention_heads", 4},
              {"image_size", 16},
              {"patch_size", 4},
              {"projection_dim", 16}}}};
  }
};

/// A value as the bytes of one F32, BF16 or F16 element (rounded to nearest even; for values that
/// are normal numbers in F16).
inline std::string element_bytes(float value, DType dtype) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, 4);
  if (dtype == DType::kF32) return {reinterpret_cast<const char*>(&bits), 4};
  const int dropped = dtype == DType::kBF16 ? 16 : 13;
  bits += (1u << (dropped - 1)) - 1 + ((bits >> dropped) & 1);
  uint16_t half = static_cast<uint16_t>(bits >> 16);
  if (dtype == DType::kF16) {
    const int exponent = static_cast<int>((bits >> 23) & 255) - 127 + 15;
    const uint32_t magnitude =
        exponent <= 0 ? 0 : (static_cast<uint32_t>(exponent) << 10) | ((bits >> 13) & 1023);
    half = static_cast<uint16_t>((bits >> 16 & 0x8000) | magnitude);
  }
  return {reinterpret_cast<const char*>(&half), 2};
}

/// A tensor to be written; tests may change, drop and add entries before.
struct StoredTensor {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::string bytes;
};
using StoredTensors = std::map<std::string, StoredTensor>;

inline StoredTensor random_tensor(const std::vector<int64_t>& shape, DType dtype, uint64_t seed,
                                  double mean, double spread) {
  StoredTensor tensor{dtype, shape, {}};
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  std::mt19937_64 random(seed);
  for (int64_t i = 0; i < count; ++i) {
    const double uniform = static_cast<double>(random() >> 11) *
                           0x1p-53;  // mt19937_64 is portable, distributions are not
    tensor.bytes +=
        element_bytes(static_cast<float>(mean + spread * std::sqrt(12.0) * (uniform - 0.5)), dtype);
  }
  return tensor;
}

inline StoredTensors tiny_llava_tensors(const TinyLlava& tiny) {
  StoredTensors tensors;
  uint64_t number = tiny.seed * 1000;
  for (const TensorSpec& spec : tensors_of(llava::parse_llava(tiny.config(), "tiny"))) {
    const bool scale = spec.name.ends_with("norm.weight") ||
                       spec.name.find("norm1.weight") != std::string::npos ||
                       spec.name.find("norm2.weight") != std::string::npos;
    std::string name = spec.name;
    const std::string old = "vision_tower.vision_model.";
    if (tiny.new_clip_names && name.starts_with(old))
      name = "vision_tower." + name.substr(old.size());
    tensors[name] = random_tensor(spec.shape, tiny.dtype, ++number, scale ? 1.0 : 0.0, tiny.spread);
  }
  return tensors;
}

inline void write_safetensors(const std::string& path, const StoredTensors& tensors) {
  std::vector<TensorInfo> infos;
  for (const auto& [name, tensor] : tensors) {
    TensorInfo info;
    info.name = name;
    info.dtype = tensor.dtype;
    info.shape = tensor.shape;
    infos.push_back(info);
  }
  SafetensorsWriter writer(path, infos, {{"format", "pt"}});
  for (const TensorInfo& info : writer.order())
    writer.append(tensors.at(info.name).bytes.data(), tensors.at(info.name).bytes.size());
  writer.finish();
}

/// One file, or `shards` of them with an index; tensors are assigned to shards round-robin in the
/// order of their names.
inline void write_weights(const std::string& dir, const StoredTensors& tensors, int shards) {
  if (shards == 1) return write_safetensors(dir + "/model.safetensors", tensors);
  std::vector<StoredTensors> parts(shards);
  nlohmann::json map = nlohmann::json::object();
  uint64_t bytes = 0;
  int next = 0;
  for (const auto& [name, tensor] : tensors) {
    const int shard = next++ % shards;
    parts[shard][name] = tensor;
    map[name] = "model-0000" + std::to_string(shard + 1) + "-of-0000" + std::to_string(shards) +
                ".safetensors";
    bytes += tensor.bytes.size();
  }
  for (const StoredTensors& part : parts)
    write_safetensors(dir + "/" + map[part.begin()->first].get<std::string>(), part);
  const nlohmann::json index = {{"metadata", {{"total_size", bytes}}}, {"weight_map", map}};
  write_file_atomic(dir + "/model.safetensors.index.json", index.dump(2));
}

/// Writes the folder and returns it. `change` may alter the tensors before they are written.
inline std::string write_tiny_llava(const std::string& dir, const TinyLlava& tiny = {},
                                    const std::function<void(StoredTensors&)>& change = nullptr) {
  make_dirs(dir);
  write_file_atomic(dir + "/config.json", tiny.config().dump(2));
  StoredTensors tensors = tiny_llava_tensors(tiny);
  if (change) change(tensors);
  write_weights(dir, tensors, tiny.shards);
  return dir;
}

}  // namespace lft::test
