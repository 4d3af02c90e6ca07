// Fully trained parts, for every family and every combination of scopes, with and without LoRA
// on the rest: saved, loaded and merged, the result is the same model.
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <fstream>

#include "hf/support.h"
#include "models/family/model.h"
#include "models/lora/inject_select.h"
#include "models/registry/registry.h"
#include "src/hf/adapter/adapter_load.h"
#include "src/hf/adapter/adapter_merge.h"
#include "src/hf/adapter/adapter_model.h"
#include "src/hf/adapter/adapter_parts.h"
#include "src/hf/adapter/adapter_save.h"
#include "src/hf/weights.h"
#include "src/hf/weights_load.h"
#include "src/io/json.h"

namespace lft::whole_scopes_test {
using namespace lft::test;
namespace {

/// Parts of a tiny config.json.
const Json kText = {{"model_type", "llama"},          {"hidden_size", 32},
                    {"intermediate_size", 48},        {"num_hidden_layers", 2},
                    {"num_attention_heads", 4},       {"num_key_value_heads", 2},
                    {"max_position_embeddings", 128}, {"vocab_size", 64}};
const Json kVision = {{"hidden_size", 24},      {"intermediate_size", 40},
                      {"num_hidden_layers", 3}, {"num_attention_heads", 4},
                      {"image_size", 16},       {"patch_size", 4}};
const Json kCanvases = {{16, 32}, {32, 16}};

Json with(Json json, const Json& more) {
  json.update(more);
  return json;
}

Json golden_qwen(const char* model_type) {
  const Json golden =
      Json::parse(std::ifstream(LFT_SOURCE_DIR "/tests/goldens/models/qwen_vl.json"));
  for (const auto& [name, entry] : golden["cases"].items()) {
    const Json& config = entry["config"];
    if (config["model_type"] == model_type && !config.value("tie_word_embeddings", false))
      return config;
  }
  return nullptr;
}

Json config_of(const std::string& model_type) {
  const Json clip = with(kVision, {{"model_type", "clip_vision_model"}}),
             siglip = with(kVision, {{"model_type", "siglip_vision_model"}});
  const Json base = {{"model_type", model_type}, {"tie_word_embeddings", false}};
  if (model_type == "llava")
    return with(base, {{"text_config", kText}, {"vision_config", clip}, {"image_token_index", 60}});
  if (model_type == "llava_next")
    return with(base, {{"text_config", kText},
                       {"vision_config", clip},
                       {"image_token_index", 60},
                       {"image_grid_pinpoints", kCanvases}});
  if (model_type == "llava_onevision")
    return with(base, {{"text_config",
                        with(kText, {{"model_type", "qwen2"}, {"tie_word_embeddings", false}})},
                       {"vision_config", siglip},
                       {"image_token_index", 60},
                       {"image_grid_pinpoints", kCanvases}});
  if (model_type == "smolvlm")
    return with(base, {{"text_config", kText},
                       {"vision_config", kVision},
                       {"image_token_id", 60},
                       {"scale_factor", 2}});
  if (model_type.starts_with("internvl")) {
    Json tower = with(kVision, {{"attention_bias", true}, {"use_qk_norm", true}}),
         text = with(kText, {{"model_type", "qwen3"}, {"head_dim", 8}});
    if (model_type == "internvl")
      return with(base, {{"text_config", text}, {"vision_config", tower}, {"image_token_id", 60}});
    return with(base, {{"llm_config", text},
                       {"vision_config", kVision},
                       {"ps_version", "v2"},
                       {"image_token_id", 60}});
  }
  if (model_type == "gemma3")
    return with(base,
                {{"text_config", with(kText, {{"model_type", "gemma3_text"}, {"head_dim", 8}})},
                 {"vision_config", kVision},
                 {"mm_tokens_per_image", 4},
                 {"image_token_index", 60}});
  return golden_qwen(model_type.c_str());
}

using Scopes = std::vector<std::string>;
const std::vector<Scopes> kFull = {{"vision"},
                                   {"projector"},
                                   {"llm"},
                                   {"projector", "vision"},
                                   {"llm", "vision"},
                                   {"llm", "projector"},
                                   {"llm", "projector", "vision"}};

class WholeScopes : public ::testing::TestWithParam<const char*> {
 protected:
  WholeScopes() {
    temp_.write("config/config.json", config_of(GetParam()).dump());
    const ModelDir source = ModelDir::config_only(temp_.file("config"));
    Model model = random_model(source.config, at::kFloat, at::kCPU, 1);
    save_model(base(), model, source);
  }
  std::string base() const { return temp_.file("base"); }
  static bool trains(const Scopes& full, const std::string& name) {
    return std::ranges::find(full, scope_of(name)) != full.end();
  }

  /// The base with other numbers in the scopes, and LoRA on the other linear layers.
  Model trained(const Scopes& full, bool with_lora) {
    const at::NoGradGuard no_grad;
    Model model = load_tiny(base());
    std::vector<LinearSite> sites = linear_sites(*model);
    std::erase_if(sites, [&](const auto& site) { return trains(full, site.name); });
    if (with_lora) inject_lora(sites, lora_, 1);
    for (const auto& item : model->named_parameters()) {
      if (item.key().ends_with(".lora_B") || trains(full, item.key()))
        item.value().add_(at::randn_like(item.value()), 0.05);
    }
    return model;
  }

  /// Loaded with the base or merged into it, the folder gives `model`.
  void expect_round_trip(const std::string& folder, Model& model, const std::string& out) {
    const AdapterDir dir = AdapterDir::open(folder);
    const auto opened = std::make_shared<const ModelDir>(ModelDir::open(base()));
    Model read = load_tiny(base());
    Model in_files = load_model(*opened, at::kFloat, at::kCPU, true, {.in_files = opened});
    load_adapter(read, dir);
    load_adapter(in_files, dir);
    EXPECT_EQ(parameters_of(read), parameters_of(model));
    const family::Batch text = words();
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(in_files->all_logits(text).equal(model->all_logits(text)));
    merge_to_dir(base(), folder, out);
    merge_adapters(*model);
    Model merged = load_tiny(out);
    EXPECT_EQ(parameters_of(merged), parameters_of(model));
  }

  static family::Batch words() {
    family::Batch batch;
    batch.input_ids_bt =
        at::tensor(std::vector<int64_t>{1, 7, 11, 5, 2, 9}, at::kLong).view({1, 6});
    batch.lengths_b = at::tensor(std::vector<int64_t>{6}, at::kLong);
    return batch;
  }

  /// Tensor names and bytes.
  static std::map<std::string, std::string> parameters_of(Model& model) {
    std::map<std::string, std::string> parameters;
    for (const auto& item : model->named_parameters()) {
      const at::Tensor dense = item.value().detach().contiguous();
      parameters[item.key()] = {static_cast<const char*>(dense.const_data_ptr()), dense.nbytes()};
    }
    return parameters;
  }

  const LoraOptions lora_{.rank = 2, .alpha = 4};
  TempDir temp_;
};

TEST_P(WholeScopes, AreReadAndMergedAsTheyWereSaved) {
  at::manual_seed(3);
  int64_t number = 0;
  for (const Scopes& full : kFull) {
    for (const bool with_lora : {true, false}) {
      Model model = trained(full, with_lora);
      const bool has_lora = std::ranges::any_of(
          linear_sites(*model), [](const auto& site) { return site.layer->adapter() != nullptr; });
      if (with_lora && !has_lora) continue;  // everything is fully trained
      SCOPED_TRACE(::testing::PrintToString(full) + (with_lora ? " and LoRA" : ""));
      const std::string folder = temp_.file("saved-" + std::to_string(++number));
      if (with_lora) {
        save_adapter(folder, model, lora_, full, {base(), "", "", ""});
      } else {
        save_parts(folder, model, full, {base(), "", "", ""});
      }
      expect_round_trip(folder, model, temp_.file("merged-" + std::to_string(number)));
    }
  }
}

/// Adapters of an older lft name blocks that the tower does not have.
TEST_P(WholeScopes, NamesOfModulesThatAreNotThereArePassedOver) {
  Model model = trained({"vision"}, true);
  save_adapter(temp_.file("saved"), model, lora_, {"vision"}, {base(), "", "", ""});
  const std::string file = temp_.file("saved") + "/adapter_config.json";
  Json config = read_json_file(file);
  std::vector<std::string> names = config["modules_to_save"];
  for (const AdapterDir dir = AdapterDir::open(temp_.file("saved"));
       const std::string& name : names) {
    EXPECT_TRUE(std::ranges::any_of(dir.full_tensors, [&](const std::string& tensor) {
      return ("." + dir.stored_names.at(tensor)).find("." + name + ".") != std::string::npos;
    })) << name;
  }
  names.emplace_back("blocks.63");
  config["modules_to_save"] = names;
  write_file_atomic(file, config.dump());
  expect_round_trip(temp_.file("saved"), model, temp_.file("merged"));
}

INSTANTIATE_TEST_SUITE_P(Families, WholeScopes,
                         ::testing::Values("llava", "llava_next", "llava_onevision", "qwen2_vl",
                                           "qwen2_5_vl", "qwen3_vl", "qwen3_5", "qwen3_vl_moe",
                                           "qwen3_5_moe", "smolvlm", "internvl", "internvl_chat",
                                           "gemma3"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace lft::whole_scopes_test
