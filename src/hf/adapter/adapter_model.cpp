#include "src/hf/adapter/adapter_model.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "models/family/model.h"
#include "src/hf/adapter/model_files.h"
#include "src/hf/expert_slices.h"
#include "src/hf/weights.h"
#include "src/io/files.h"
#include "src/io/json.h"

namespace lft::hf {
namespace {

constexpr uint64_t kShardBytes = 5'000'000'000;

const char* dtype_text(at::ScalarType type) {
  return type == at::kFloat ? "float32" : type == at::kHalf ? "float16" : "bfloat16";
}

/// Sets the dtype wherever the config has one, in either spelling; the towers' sub-configs may have
/// it too.
void set_dtype(io::Json* config, const std::string& dtype) {
  for (const char* key : {"torch_dtype", "dtype"}) {
    if (config->contains(key)) (*config)[key] = dtype;
  }
  for (const char* tower : {"text_config", "vision_config"}) {
    if (config->contains(tower) && (*config)[tower].is_object())
      set_dtype(&(*config)[tower], dtype);
  }
}

std::string config_text(const ModelDir& source, at::ScalarType type) {
  io::Json config = io::read_json_file(source.path + "/config.json");
  set_dtype(&config, dtype_text(type));
  if (!config.contains("torch_dtype") && !config.contains("dtype"))
    config["torch_dtype"] = dtype_text(type);
  return pretty_json(config);
}

at::ScalarType most_common_type(const std::map<std::string, at::Tensor>& parameters) {
  std::map<at::ScalarType, int64_t> bytes;
  for (const auto& [name, tensor] : parameters)
    bytes[tensor.scalar_type()] += static_cast<int64_t>(tensor.nbytes());
  return std::max_element(bytes.begin(), bytes.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

using Shards = std::vector<std::map<std::string, at::Tensor>>;

Shards split(const std::map<std::string, at::Tensor>& parameters) {
  Shards shards(1);
  uint64_t bytes = 0;
  for (const auto& [name, tensor] : parameters) {
    if (bytes != 0 && bytes + tensor.nbytes() > kShardBytes) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += tensor.nbytes();
    shards.back().emplace(name, tensor);
  }
  return shards;
}

std::string shard_name(size_t index, size_t count) {
  char name[64];
  snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return name;
}

void write_shards(const std::string& out, const Shards& shards) {
  if (shards.size() == 1) return write_tensors(out + "/model.safetensors", shards[0]);
  io::Json map = io::Json::object();
  uint64_t bytes = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shard_name(i, shards.size());
    write_tensors(out + "/" + name, shards[i]);
    for (const auto& [tensor, value] : shards[i]) {
      map[tensor] = name;
      bytes += value.nbytes();
    }
  }
  io::write_file_atomic(out + "/model.safetensors.index.json",
                        pretty_json({{"metadata", {{"total_size", bytes}}}, {"weight_map", map}}));
}

}  // namespace

void save_model(const std::string& path, family::Model& model, const ModelDir& source,
                const AdapterNotes& notes) {
  const std::map<std::string, at::Tensor> parameters = model_parameters(*model);
  std::map<std::string, at::Tensor> stored;
  for (const auto& [name, tensor] : parameters)
    stored.emplace(model->config.family->names.stored_name(name),
                   written_tensor(model->config, name, tensor));
  const std::string config = config_text(source, most_common_type(stored));
  io::write_dir_atomic(path, [&](const std::string& out) {
    write_shards(out, split(stored));
    io::write_file_atomic(out + "/config.json", config);
    write_model_files(source.path, out, source.config, notes);
  });
}

}  // namespace lft::hf
