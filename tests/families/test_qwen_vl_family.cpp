// Qwen2-VL, Qwen2.5-VL, Qwen3-VL and Qwen3.5, the last two also with experts: their config.json,
// tensors, names and images.
#include <map>
#include <set>

#include "families/tiny_qwen.h"

namespace lft::test::qwen_vl_test {
namespace {

class QwenVlNames : public QwenVlCase {};

TEST_P(QwenVlNames, TensorsAreTheModels) {
  std::map<std::string, std::vector<int64_t>> listed, held;
  for (const family::TensorSpec& tensor : config_.family->layout(config_).tensors)
    listed[tensor.name] = tensor.shape;
  for (const auto& item :
       config_.family->build(config_, at::kFloat, at::kCPU, ops::BaseStorage::kDense)
           ->named_parameters())
    held[item.key()] = item.value().sizes().vec();
  EXPECT_EQ(listed, held);
  for (const auto& item : entry_["stored"].items()) EXPECT_EQ(listed.count(item.key()), 1u);
  EXPECT_EQ(listed.size(), entry_["stored"].size());
}

TEST_P(QwenVlNames, StoredNamesAreSavePretraineds) {
  for (const auto& [canonical, stored] : entry_["stored"].items()) {
    EXPECT_EQ(config_.family->names.stored_name(canonical), stored.get<std::string>());
    EXPECT_EQ(config_.family->names.canonical_name(stored, config_), canonical);
    // The other spelling is accepted too.
    std::string other = stored;
    if (other.starts_with("visual.")) {
      other = "model." + other;
    } else if (other.starts_with("model.language_model.")) {
      other = "model." + other.substr(21);
    } else if (other.starts_with("model.visual.")) {
      other = other.substr(6);
    } else if (other.starts_with("model.")) {
      other = "model.language_model." + other.substr(6);
    }
    EXPECT_EQ(config_.family->names.canonical_name(other, config_), canonical) << other;
  }
  EXPECT_EQ(config_.family->names.canonical_name("model.rotary_emb.inv_freq", config_), "");
  EXPECT_EQ(config_.family->names.canonical_name("audio.layer.weight", config_),
            "audio.layer.weight");
  EXPECT_EQ(config_.family->names.canonical_name("lm_head.weight", config_),
            config_.text.tie_embeddings ? "" : "language_model.lm_head.weight");
}

TEST_P(QwenVlNames, PeftNamesArePefts) {
  std::set<std::string> layers, experts;
  for (const family::TensorSpec& tensor : config_.family->layout(config_).tensors) {
    if (tensor.shape.size() != 2 || tensor.name.ends_with("embed_tokens.weight") ||
        tensor.name.ends_with("pos_embed.weight") || tensor.name.ends_with("lm_head.weight") ||
        tensor.name.ends_with("mlp.gate.weight"))
      continue;  // not a layer of all-linear, and not experts
    const std::string module = tensor.name.substr(0, tensor.name.size() - 7),
                      peft = config_.family->names.peft_name(module);
    (tensor.experts > 0 ? experts : layers).insert(peft);
    EXPECT_EQ(config_.family->names.from_peft_name(peft), module);
  }
  EXPECT_EQ(layers, entry_["peft"].get<std::set<std::string>>());
  EXPECT_EQ(experts, entry_.value("peft_experts", std::set<std::string>()));
  EXPECT_EQ(config_.family->names.from_peft_name("model.layers.1.mlp.up_proj"),
            "language_model.model.layers.1.mlp.up_proj");
  EXPECT_EQ(config_.family->names.from_peft_name("visual.blocks.0.attn.qkv"),
            "vision_tower.blocks.0.attn.qkv");
  EXPECT_EQ(config_.family->names.from_peft_name("encoder.layers.0"), "");
}

/// PEFT selects modules whose names end this way (its modules_to_save).
TEST_P(QwenVlNames, EveryTensorIsInAModuleOfItsScope) {
  const std::map<std::string, std::string> scopes = {
      {family::kVision, "vision"}, {family::kProjector, "projector"}, {family::kDecoder, "llm"}};
  for (const family::TensorSpec& tensor : config_.family->layout(config_).tensors) {
    const std::string peft = "." + config_.family->names.peft_name(tensor.name);
    std::set<std::string> within;
    for (const auto& [prefix, scope] : scopes) {
      for (const std::string& module : config_.family->names.modules_of_scope(scope)) {
        if (peft.find("." + module + ".") != std::string::npos) {
          within.insert(scope);
          EXPECT_TRUE(tensor.name.starts_with(prefix)) << tensor.name << " " << module;
        }
      }
    }
    EXPECT_EQ(within.size(), 1u) << tensor.name;
  }
}

TEST_P(QwenVlNames, APartOfTheOtherGenerationIsNone) {
  const bool deep = config_.model_type.starts_with("qwen3_vl"),
             recurrent = config_.model_type.starts_with("qwen3_5");
  const auto is_read = [&](const char* part) {
    return !config_.family->names.from_peft_name(part).empty();
  };
  EXPECT_EQ(is_read("visual.deepstack_merger_list.0.norm"), deep);
  EXPECT_EQ(is_read("model.visual.pos_embed"), deep || recurrent);
  EXPECT_EQ(config_.family->names.canonical_name("mtp.fc.weight", config_),
            recurrent ? "" : "mtp.fc.weight");
  const std::vector<std::string> names = {deep ? "model.visual.deepstack_merger_list.0.norm"
                                               : "model.visual.merger.mlp.0"};
  // Qwen2-VL and Qwen2.5-VL have the same names.
  EXPECT_EQ(registry::family_of_peft_names(names).name, deep ? "Qwen3-VL" : "Qwen2.5-VL");
  EXPECT_EQ(registry::family_of_peft_names({"model.language_model.layers.0.mlp.experts"}).name,
            "Qwen3-VL-MoE");
}

TEST_P(QwenVlNames, FingerprintSeesWhatCounts) {
  Json changed = entry_["config"], same = entry_["config"];
  changed["vision_config"]["num_heads"] = 1;
  same["use_cache"] = false;
  const std::string print = config_.family->fingerprint(config_);
  EXPECT_NE(config_.family->fingerprint(registry::parse_config(changed, "changed")), print);
  EXPECT_EQ(config_.family->fingerprint(registry::parse_config(same, "same")), print);
}

TEST_P(QwenVlNames, ShapesNameLayersThatAreThere) {
  std::set<std::string> names;
  for (const family::TensorSpec& tensor : config_.family->layout(config_).tensors)
    names.insert(tensor.name);
  const family::ModelLayout layout = config_.family->layout(config_);
  int64_t blocks = 0;
  std::vector<family::Tower> towers = layout.decoder;
  towers.push_back(layout.vision);
  for (const family::Tower& tower : towers) {
    blocks += tower.count;
    for (int64_t i = 0; i < tower.count; ++i) {
      const int64_t number = tower.numbers.empty() ? i : tower.numbers[static_cast<size_t>(i)];
      const std::string block = tower.layers + std::to_string(number) + ".";
      std::vector<std::string> modules = tower.qkv;
      modules.insert(modules.end(), tower.mlp_in.begin(), tower.mlp_in.end());
      modules.insert(modules.end(), tower.norms.begin(), tower.norms.end());
      modules.push_back(tower.o);
      modules.push_back(tower.mlp_out);
      for (const std::string& module : modules)
        EXPECT_EQ(names.count(block + module + ".weight"), 1u) << module;
    }
    for (const std::string& table : tower.tables) EXPECT_EQ(names.count(table), 1u) << table;
  }
  EXPECT_EQ(blocks, layout.vision.count + config_.text.layers);
  for (const auto& layer : config_.family->layout(config_).projector.layers)
    EXPECT_EQ(names.count(layer.name + ".weight"), 1u) << layer.name;
}

INSTANTIATE_TEST_SUITE_P(Cases, QwenVlNames, ::testing::ValuesIn(kCases), case_name);

const family::ModelConfig& tiny(const char* name) {
  static std::map<std::string, family::ModelConfig> configs;
  auto [it, fresh] = configs.try_emplace(name);
  if (fresh) it->second = registry::parse_config(golden()["cases"][name]["config"], "golden");
  return it->second;
}

TEST(QwenVlImages, PixelsAreTheProcessors) {
  const std::vector<family::TileImage> images = golden_images(tiny("qwen2_5_vl"));
  ASSERT_EQ(images.size(), golden()["images"].size());
  for (size_t i = 0; i < images.size(); ++i) {
    const Json& want = golden()["images"][i];
    EXPECT_EQ(images[i].shape.height, want["height"]);
    EXPECT_EQ(images[i].shape.width, want["width"]);
    uint32_t hash = 2166136261u;
    for (const uint8_t value : images[i].values) hash = (hash ^ value) * 16777619u;
    EXPECT_EQ(hash, want["fnv"].get<uint32_t>()) << i;
    for (size_t at = 0; at < want["first"].size(); ++at)
      EXPECT_EQ(images[i].values[at], want["first"][at]) << i << " " << at;
  }
}

TEST(QwenVlImages, SizesAreSmartResizes) {
  for (const Json& rule : golden()["resized"]) {
    for (const Json& size : rule["sizes"]) {
      const image::Size got = qwen_vl::native_size({.width = size[0], .height = size[1]},
                                                   rule["side"], {rule["least"], rule["most"]});
      EXPECT_EQ(got, (image::Size{size[2], size[3]})) << rule["side"] << size;
    }
  }
}

TEST(QwenVlImages, PlanSaysWhatMakeMakes) {
  const family::ModelConfig& config = tiny("qwen3_vl");
  const auto processor = golden_processor(config, golden()["processor"], {.fit = "native"});
  const std::vector<uint8_t> rgb = photo(61, 17);
  const family::ImagePlan plan = processor->plan({.width = 61, .height = 17});
  EXPECT_EQ(plan.shape, processor->make({.rgb_hwc = rgb.data(), .width = 61, .height = 17}).shape);
  EXPECT_EQ(plan.text, "<|vision_start|><|image_pad|><|vision_end|>");
  EXPECT_EQ(processor->token(), "<|image_pad|>");
  const family::Model model =
      config.family->build(config, at::kFloat, at::kCPU, ops::BaseStorage::kDense);
  EXPECT_EQ(plan.positions(), model->image_positions(plan.shape));
  EXPECT_EQ(plan.tower_positions, 4 * plan.positions());
}

TEST(QwenVlImages, RulesGoBeforeTheFile) {
  const family::ModelConfig& config = tiny("qwen2_5_vl");
  const auto processor = golden_processor(config, golden()["processor"],
                                          {.fit = "native", .min_pixels = 64, .max_pixels = 64});
  EXPECT_EQ(processor->plan({.width = 500, .height = 500}).positions(), 1);
  EXPECT_NE(processor->identity(),
            golden_processor(config, golden()["processor"], {.fit = "native"})->identity());
}

TEST(QwenVlImages, RefusesWhatItCannotTake) {
  const family::ModelConfig& config = tiny("qwen2_5_vl");
  const Json& file = golden()["processor"];
  const auto with = [&](const char* key, const Json& value) {
    Json changed = file;
    changed[key] = value;
    return changed;
  };
  refusal([&] { golden_processor(config, file, {.fit = "pad"}); }, ErrorKind::kUsage);
  refusal(
      [&] {
        golden_processor(config, file, {.fit = "native", .min_pixels = 900, .max_pixels = 100});
      },
      ErrorKind::kUsage);
  Json crossed = file;
  crossed["min_pixels"] = 900;
  crossed["max_pixels"] = 100;
  refusal([&] { golden_processor(config, crossed, {.fit = "native"}); }, ErrorKind::kInput);
  for (const auto& [key, value] : std::map<std::string, Json>{{"patch_size", 14},
                                                              {"merge_size", 3},
                                                              {"temporal_patch_size", 1},
                                                              {"do_resize", false},
                                                              {"resample", 2},
                                                              {"max_pixels", 0}}) {
    const ErrorInfo info =
        refusal([&] { golden_processor(config, with(key.c_str(), value), {.fit = "native"}); },
                ErrorKind::kInput);
    EXPECT_NE(info.what.find(key), std::string::npos) << info.what;
  }
  const auto processor = golden_processor(config, file, {.fit = "native"});
  refusal([&] { processor->plan({.width = 1000, .height = 3}); }, ErrorKind::kInput);
}

TEST(QwenVlConfig, PublishedSizesAreTransformers) {
  for (const Json& published : golden()["published"]) {
    const family::ModelConfig config = registry::parse_config(published["config"], "published");
    int64_t parameters = 0, count = 0;
    for (const family::TensorSpec& tensor : config.family->layout(config).tensors) {
      int64_t values = 1;
      for (const int64_t size : tensor.shape) values *= size;
      parameters += values;
      ++count;
    }
    EXPECT_EQ(parameters, published["parameters"]) << config.model_type;
    EXPECT_EQ(count, published["tensors"]);
    EXPECT_EQ(config.eos_tokens,
              (std::vector<int64_t>{config.model_type.starts_with("qwen3_5") ? 248044 : 151645}));
    // Without a processor file: 640x480 keeps its size, rounded to whole positions.
    const int64_t side = config.model_type.starts_with("qwen3") ? 32 : 28;
    EXPECT_EQ(family::reference_image_plan(config).positions(),
              std::lround(640.0 / static_cast<double>(side)) *
                  std::lround(480.0 / static_cast<double>(side)));
  }
}

TEST(QwenVlConfig, RefusesWhatIsOutOfRange) {
  const auto refused = [](const char* which, const char* part, const char* key, const Json& value) {
    Json config = golden()["cases"][which]["config"];
    (*part == 0 ? config : config[part])[key] = value;
    const ErrorInfo info =
        refusal([&] { registry::parse_config(config, "file"); }, ErrorKind::kInput);
    EXPECT_NE(info.what.find(key), std::string::npos) << info.what;
  };
  refused("qwen2_5_vl", "text_config", "model_type", "qwen3_vl_text");
  refused("qwen2_5_vl", "text_config", "head_dim", 12);
  refused("qwen2_5_vl", "vision_config", "out_hidden_size", 31);
  refused("qwen2_5_vl", "vision_config", "num_heads", 4);
  refused("qwen2_5_vl", "vision_config", "window_size", 7);
  refused("qwen2_5_vl", "vision_config", "hidden_act", "gelu");
  refused("qwen2_5_vl", "vision_config", "temporal_patch_size", 1);
  refused("qwen2_5_vl", "vision_config", "fullatt_block_indexes", Json::array({2, 1}));
  refused("qwen2_vl", "text_config", "head_dim", 12);
  refused("qwen2_vl", "vision_config", "hidden_size", 31);
  refused("qwen2_vl", "vision_config", "num_heads", 5);
  refused("qwen2_vl", "vision_config", "mlp_ratio", 0);
  refused("qwen2_vl", "vision_config", "mlp_ratio", 0.01);
  refused("qwen3_vl", "vision_config", "deepstack_visual_indexes", Json::array({0, 3}));
  refused("qwen3_vl", "vision_config", "deepstack_visual_indexes", Json::array({0, 1, 2, 2}));
  refused("qwen3_vl", "vision_config", "num_position_embeddings", 0);
  refused("qwen3_5", "vision_config", "num_position_embeddings", 0);
  refused("qwen3_5", "text_config", "layer_types", Json::array({"linear_attention"}));
  refused("qwen3_5", "text_config", "layer_types",
          Json::array({"linear_attention", "linear_attention", "linear_attention"}));
  refused("qwen3_5", "text_config", "layer_types",
          Json::array({"linear_attention", "full_attention", "sliding_attention"}));
  refused("qwen3_5", "text_config", "full_attention_interval", 4);
  refused("qwen3_5", "text_config", "linear_num_value_heads", 5);
  refused("qwen3_5", "text_config", "linear_conv_kernel_dim", 1);
  refused("qwen3_5", "text_config", "partial_rotary_factor", 0.04);
  refused("qwen3_vl_moe", "text_config", "model_type", "qwen3_vl_text");
  refused("qwen3_vl_moe", "text_config", "num_experts_per_tok", 6);
  refused("qwen3_vl_moe", "text_config", "num_experts", 0);
  refused("qwen3_vl_moe", "text_config", "moe_intermediate_size", 0);
  refused("qwen3_vl_moe", "text_config", "decoder_sparse_step", 0);
  refused("qwen3_vl_moe", "text_config", "mlp_only_layers", 1);
  refused("qwen3_vl_moe", "text_config", "mlp_only_layers", Json::array({-1}));
  refused("qwen3_5_moe", "text_config", "shared_expert_intermediate_size", 0);
}

TEST(QwenVlConfig, TheDecodersLayersSlideFromMaxWindowLayersOn) {
  Json config = golden()["cases"]["qwen2_5_vl_flat_tied"]["config"];
  config["sliding_window"] = 64;
  const auto slides = [&] { return registry::parse_config(config, "file").text.slides; };
  EXPECT_TRUE(slides().empty());  // use_sliding_window is false
  config["use_sliding_window"] = true;
  config["max_window_layers"] = 2;
  EXPECT_EQ(slides(), (std::vector<bool>{false, false, true}));
  config["sliding_window"] = 256;  // the whole context
  EXPECT_TRUE(slides().empty());
}

TEST(QwenVlConfig, ASectionThatDoesNotFillAHeadIsRefused) {
  Json config = golden()["cases"]["qwen2_5_vl"]["config"];
  config["text_config"]["rope_parameters"]["mrope_section"] = Json::array({1, 1, 1});
  const ErrorInfo info =
      refusal([&] { registry::parse_config(config, "file"); }, ErrorKind::kInput);
  EXPECT_NE(info.what.find("mrope_section"), std::string::npos);
}

}  // namespace
}  // namespace lft::test::qwen_vl_test
