// Tiny checkpoints with experts as folders, drawn at random in the layouts in which they occur.
#pragma once
#include <ATen/ops/from_blob.h>

#include <nlohmann/json.hpp>
#include <string>

#include "models/registry/registry.h"
#include "src/hf/weights_load.h"
#include "support/tiny_llava.h"

namespace lft::test {

/// qwen3_vl_moe or qwen3_5_moe: three layers of eight experts, of which the second of a
/// qwen3_vl_moe has none. All sides are multiples of 16, as FP8 products need.
inline nlohmann::json expert_config(const std::string& model_type) {
  const bool shares = model_type == "qwen3_5_moe";
  nlohmann::json text = {
      {"model_type", model_type + "_text"},
      {"hidden_size", 32},
      {"intermediate_size", 48},
      {"num_hidden_layers", 3},
      {"num_attention_heads", 4},
      {"num_key_value_heads", 2},
      {"head_dim", 16},
      {"vocab_size", 64},
      {"max_position_embeddings", 256},
      {"num_experts", 8},
      {"num_experts_per_tok", 3},
      {"moe_intermediate_size", 48},
      {"rope_parameters",
       {{"rope_type", "default"},
        {"rope_theta", 1000.0},
        {"mrope_section", shares ? std::vector<int>{1, 1, 0} : std::vector<int>{4, 2, 2}},
        {"mrope_interleaved", true}}}};
  if (shares) {
    text.update({{"full_attention_interval", 2},
                 {"linear_num_key_heads", 2},
                 {"linear_num_value_heads", 16},
                 {"linear_key_head_dim", 8},
                 {"linear_value_head_dim", 8},
                 {"shared_expert_intermediate_size", 16}});
  } else {
    text["mlp_only_layers"] = {1};
  }
  nlohmann::json vision = {{"model_type", model_type + "_vision"},
                           {"depth", 2},
                           {"hidden_size", 24},
                           {"intermediate_size", 20},
                           {"num_heads", 2},
                           {"out_hidden_size", 32},
                           {"patch_size", 4},
                           {"num_position_embeddings", 25}};
  if (!shares) vision["deepstack_visual_indexes"] = {0};
  return {{"model_type", model_type},  {"image_token_id", 60},
          {"video_token_id", 61},      {"vision_start_token_id", 58},
          {"vision_end_token_id", 59}, {"tie_word_embeddings", false},
          {"text_config", text},       {"vision_config", vision}};
}

/// The tensors of a checkpoint of `dtype`; experts as [expert, in, out] if they are transposed.
/// Both layouts have the same numbers.
inline StoredTensors expert_tensors_of(const nlohmann::json& config, DType dtype, bool transposed) {
  const family::ModelConfig model = registry::parse_config(config, "tiny");
  StoredTensors tensors;
  uint64_t seed = 40;
  for (const family::TensorSpec& spec : model.family->layout(model).tensors) {
    const bool scale = spec.name.ends_with("norm.weight") || spec.name.find("norm1") < 99 ||
                       spec.name.find("norm2") < 99;
    const std::vector<int64_t> shape = spec.stored_shape(/*transposed=*/false);
    StoredTensor tensor = random_tensor(shape, dtype, ++seed, scale ? 1 : 0, 0.15);
    if (spec.experts > 0 && transposed) {
      const at::Tensor values =
          at::from_blob(tensor.bytes.data(), shape, at::TensorOptions(hf::to_scalar_type(dtype)))
              .transpose(1, 2)
              .contiguous();
      tensor.shape = values.sizes().vec();
      tensor.bytes = {static_cast<const char*>(values.const_data_ptr()), values.nbytes()};
    }
    tensors[model.family->names.stored_name(spec.name)] = std::move(tensor);
  }
  return tensors;
}

inline std::string write_experts(const std::string& dir, const nlohmann::json& config,
                                 const StoredTensors& tensors) {
  make_dirs(dir);
  write_file_atomic(dir + "/config.json", config.dump());
  write_safetensors(dir + "/model.safetensors", tensors);
  return dir;
}

}  // namespace lft::test
