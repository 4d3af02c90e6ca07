// InternVL: its config.json, tensors, names and images.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "kernels/common/error.h"
#include "models/family/model.h"
#include "models/internvl/internvl_images.h"
#include "models/layers/pixel_shuffle.h"
#include "models/registry/registry.h"

namespace lft::test::internvl_test {
namespace {

using Json = nlohmann::json;

/// Tiles of 8 x 8 patches and 16 positions.
Json tiny() {
  return {{"model_type", "internvl"},
          {"image_token_id", 50},
          {"tie_word_embeddings", false},
          {"text_config",
           {{"model_type", "qwen3"},
            {"hidden_size", 24},
            {"intermediate_size", 40},
            {"num_hidden_layers", 2},
            {"num_attention_heads", 4},
            {"num_key_value_heads", 2},
            {"head_dim", 8},
            {"vocab_size", 64}}},
          {"vision_config",
           {{"hidden_size", 16},
            {"intermediate_size", 24},
            {"num_hidden_layers", 2},
            {"num_attention_heads", 2},
            {"image_size", {56, 56}},
            {"patch_size", {7, 7}}}}};
}

family::ModelConfig parsed(const Json& json) { return registry::parse_config(json, "config.json"); }

family::ModelConfig changed(const std::string& pointer, const Json& value) {
  Json json = tiny();
  json[Json::json_pointer(pointer)] = value;
  return parsed(json);
}

std::string refused(const std::string& pointer, const Json& value) {
  try {
    changed(pointer, value);
  } catch (const Error& error) {
    return error.info().what;
  }
  return "";
}

std::map<std::string, std::vector<int64_t>> tensors_of(const family::ModelConfig& config) {
  std::map<std::string, std::vector<int64_t>> tensors;
  for (const family::TensorSpec& tensor : config.family->layout(config).tensors)
    tensors[tensor.name] = tensor.shape;
  return tensors;
}

TEST(InternVlFamily, TensorsFollowTheConfig) {
  const std::string layer = "vision_tower.encoder.layer.1.", bias = layer + "attention.q_proj.bias",
                    norm = layer + "attention.k_norm.weight",
                    before = layer + "layernorm_before.bias";
  const auto plain = tensors_of(parsed(tiny()));
  EXPECT_EQ(plain.count(bias) + plain.count(norm), 0u);
  EXPECT_EQ(plain.count(before), 1u);
  EXPECT_EQ(plain.at("vision_tower.embeddings.position_embeddings"),
            (std::vector<int64_t>{1, 65, 16}));
  EXPECT_EQ(plain.at("multi_modal_projector.linear_1.weight"), (std::vector<int64_t>{24, 64}));
  EXPECT_EQ(tensors_of(changed("/vision_config/attention_bias", true)).count(bias), 1u);
  EXPECT_EQ(tensors_of(changed("/vision_config/use_qk_norm", true)).at(norm),
            std::vector<int64_t>{16});  // over all heads
  EXPECT_EQ(tensors_of(changed("/vision_config/norm_type", "rms_norm")).count(before), 0u);
  const family::ModelLayout layout = parsed(tiny()).family->layout(parsed(tiny()));
  EXPECT_EQ(layout.vision.qkv.size(), 3u);
  EXPECT_EQ(layout.vision.o, "attention.projection_layer");
  EXPECT_EQ(layout.vision.mlp_out, "mlp.fc2");
  EXPECT_TRUE(layout.vision.branch_scales && !layout.decoder.front().branch_scales);
  EXPECT_FALSE(layout.vision.head_norms);
  EXPECT_TRUE(layout.decoder.front().head_norms);
  const family::ModelConfig qwen2 = changed("/text_config/model_type", "qwen2");
  EXPECT_FALSE(qwen2.family->layout(qwen2).decoder.front().head_norms);
  EXPECT_EQ(layout.projector.layers.size(), 2u);
}

/// transformers ties the LM head unless a file says otherwise.
TEST(InternVlFamily, TheHeadIsTiedByDefault) {
  const std::string head = "language_model.lm_head.weight";
  Json json = tiny();
  EXPECT_EQ(tensors_of(parsed(json)).count(head), 1u);
  json.erase("tie_word_embeddings");
  EXPECT_EQ(tensors_of(parsed(json)).count(head), 0u);
  json["text_config"]["tie_word_embeddings"] = false;
  EXPECT_EQ(tensors_of(parsed(json)).count(head), 1u);
}

TEST(InternVlFamily, EverySpellingOfANameIsRead) {
  const family::ModelConfig config = parsed(tiny());
  const family::CheckpointNames& names = config.family->names;
  for (const auto& [name, shape] : tensors_of(config)) {
    EXPECT_EQ(names.stored_name(name), name);
    EXPECT_EQ(names.canonical_name(name, config), name);
    EXPECT_EQ(names.canonical_name(names.peft_name(name), config), name);
  }
  EXPECT_EQ(names.peft_name("language_model.model.layers.1.mlp.up_proj"),
            "model.language_model.layers.1.mlp.up_proj");
  EXPECT_EQ(names.peft_name("vision_tower.encoder.layer.0.attention.q_proj"),
            "model.vision_tower.encoder.layer.0.attention.q_proj");
  EXPECT_EQ(names.canonical_name("audio.weight", config), "audio.weight");
}

TEST(InternVlFamily, ConfigsThatCannotBeAreRefusedByField) {
  const std::vector<std::pair<std::string, Json>> cases = {
      {"/downsample_ratio", 0.3},
      {"/downsample_ratio", 1.0 / 3},  // of 8 patches
      {"/vision_feature_layer", -2},
      {"/vision_feature_layer", {-1, -2}},
      {"/vision_feature_select_strategy", "full"},
      {"/projector_hidden_act", "tanh5"},
      {"/text_config/model_type", "internlm2"},
      {"/vision_config/model_type", "clip_vision_model"},
      {"/vision_config/norm_type", "batch_norm"},
      {"/vision_config/use_mean_pooling", false},
      {"/vision_config/use_mask_token", true},
      {"/vision_config/use_absolute_position_embeddings", false},
      {"/vision_config/num_attention_heads", 3}};
  for (const auto& [pointer, value] : cases)
    EXPECT_NE(refused(pointer, value).find(pointer.substr(pointer.rfind('/') + 1)),
              std::string::npos)
        << pointer << " " << value;
  EXPECT_EQ(refused("/downsample_ratio", 0.25), "");
}

/// The same model in the layout of the original code, as InternVL3-1B is published.
Json original() {
  const Json same = tiny();
  Json text = same["text_config"], tower = same["vision_config"];
  text["eos_token_id"] = 7;
  tower.update({{"model_type", "intern_vit_6b"},
                {"image_size", 56},
                {"patch_size", 7},
                {"norm_type", "layer_norm"},
                {"qk_normalization", false},
                {"qkv_bias", true}});
  return {{"model_type", "internvl_chat"}, {"image_token_id", 50},   {"llm_config", text},
          {"vision_config", tower},        {"force_image_size", 56}, {"ps_version", "v2"},
          {"dynamic_image_size", true},    {"use_thumbnail", true},  {"max_dynamic_patch", 3},
          {"tie_word_embeddings", true}};
}

TEST(InternVlOriginal, NamesAreThoseOfItsCode) {
  const family::ModelConfig config = parsed(original());
  const family::CheckpointNames& names = config.family->names;
  const auto tensors = tensors_of(config);
  EXPECT_EQ(tensors.at("vision_tower.encoder.layer.1.attn.qkv.weight"),
            (std::vector<int64_t>{48, 16}));
  EXPECT_EQ(tensors.count("language_model.lm_head.weight"), 1u);  // llm_config decides
  const std::vector<std::pair<std::string, std::string>> published = {
      {"vision_tower.embeddings.cls_token", "vision_model.embeddings.class_embedding"},
      {"vision_tower.embeddings.position_embeddings", "vision_model.embeddings.position_embedding"},
      {"vision_tower.embeddings.patch_embeddings.projection.bias",
       "vision_model.embeddings.patch_embedding.bias"},
      {"vision_tower.encoder.layer.1.attn.qkv.bias", "vision_model.encoder.layers.1.attn.qkv.bias"},
      {"vision_tower.encoder.layer.0.norm2.bias", "vision_model.encoder.layers.0.norm2.bias"},
      {"vision_tower.encoder.layer.0.ls1", "vision_model.encoder.layers.0.ls1"},
      {"multi_modal_projector.layer_norm.weight", "mlp1.0.weight"},
      {"multi_modal_projector.linear_2.weight", "mlp1.3.weight"},
      {"language_model.model.layers.1.self_attn.q_norm.weight",
       "language_model.model.layers.1.self_attn.q_norm.weight"},
      {"language_model.lm_head.weight", "language_model.lm_head.weight"}};
  for (const auto& [name, stored] : published) {
    EXPECT_EQ(tensors.count(name), 1u) << name;
    EXPECT_EQ(names.stored_name(name), stored);
    EXPECT_EQ(names.peft_name(name), stored);
    EXPECT_EQ(names.canonical_name(stored, config), name);
  }
  for (const auto& [name, shape] : tensors)
    EXPECT_EQ(names.canonical_name(names.stored_name(name), config), name);
  EXPECT_EQ(&registry::family_of_peft_names({"vision_model.encoder.layers.0.attn.qkv", "mlp1.1"}),
            config.family);
}

TEST(InternVlOriginal, TheConfigIsReadAsItsCodeDoes) {
  const family::ModelConfig config = parsed(original());
  const internvl::InternVlFields& own = internvl::fields(config);
  EXPECT_EQ(own.tiles.most, 3);
  EXPECT_TRUE(own.thumbnail && own.qkv_bias && !own.qk_norm && !own.rms_norms);
  EXPECT_EQ(config.eos_tokens, std::vector<int64_t>{7});
  Json json = original();
  json.erase("image_token_id");
  json["llm_config"]["vocab_size"] = 151936;
  EXPECT_EQ(parsed(json).image_token, 151671);                            // Qwen3's <IMG_CONTEXT>
  EXPECT_EQ(parsed(json).eos_tokens, (std::vector<int64_t>{7, 151645}));  // <|im_end|>
  json["llm_config"]["model_type"] = "qwen2";
  json["llm_config"].erase("head_dim");
  EXPECT_EQ(parsed(json).image_token, 151667);
  json["dynamic_image_size"] = false;
  EXPECT_EQ(internvl::fields(parsed(json)).tiles.most, 1);
  for (const auto& [key, value] : std::map<std::string, Json>{{"ps_version", "v1"},
                                                              {"select_layer", -4},
                                                              {"force_image_size", 28},
                                                              {"max_dynamic_patch", 0}}) {
    Json wrong = original();
    wrong[key] = value;
    try {
      parsed(wrong);
      ADD_FAILURE() << key;
    } catch (const Error& error) {
      EXPECT_NE(error.info().what.find(key), std::string::npos) << error.info().what;
    }
  }
}

/// The same weights, with q, k and v in one layer, give the same features.
TEST(InternVlOriginal, FeaturesAreThoseOfTheOtherLayout) {
  const at::NoGradGuard no_grad;
  at::manual_seed(5);
  Json json = tiny();
  json["vision_config"]["attention_bias"] = true;
  const family::ModelConfig config = parsed(json), other = parsed(original());
  const auto build = [](const family::ModelConfig& c) {
    return c.family->build(c, at::kFloat, at::kCPU, ops::BaseStorage::kDense);
  };
  const family::Model model = build(config), same = build(other);
  auto from = model->named_parameters();
  for (auto& item : from) item.value().normal_(0.1, 0.5);
  for (auto& item : same->named_parameters()) {
    std::string name = item.key();
    const auto rename = [&](const std::string& old, const std::string& fresh) {
      if (const size_t at = name.find(old); at != std::string::npos)
        name.replace(at, old.size(), fresh);
    };
    rename(".attn.proj", ".attention.projection_layer");
    rename(".norm1", ".layernorm_before");
    rename(".norm2", ".layernorm_after");
    rename(".ls", ".lambda_");
    if (const size_t at = name.find(".attn.qkv"); at != std::string::npos) {
      std::vector<at::Tensor> parts;
      for (const char* part : {"q", "k", "v"})
        parts.push_back(
            from[name.substr(0, at) + ".attention." + part + "_proj" + name.substr(at + 9)]);
      item.value().copy_(at::cat(parts));
    } else {
      item.value().copy_(from[name]);
    }
  }
  family::Batch batch;
  batch.pixels = at::randn({2, 3, 56, 56});
  const at::Tensor want = model->image_features(batch).features_kd;
  EXPECT_TRUE(at::allclose(same->image_features(batch).features_kd, want, 1e-5, 1e-5));
  EXPECT_EQ(want.sizes(), (at::IntArrayRef{2 * 16, 24}));
}

/// get_optimal_tiled_canvas() of transformers 5.17.
TEST(InternVlImages, GridsAreTransformers) {
  struct Case {
    image::Size size;
    int64_t tile;
    internvl::TileBounds bounds;
    image::Size grid;
  };
  const std::vector<Case> cases = {
      {{640, 480}, 448, {1, 12}, {4, 3}}, {{640, 480}, 448, {1, 6}, {3, 2}},
      {{100, 100}, 448, {1, 12}, {1, 1}}, {{2000, 2000}, 448, {1, 12}, {3, 3}},
      {{448, 448}, 448, {1, 12}, {1, 1}}, {{3000, 100}, 448, {1, 12}, {12, 1}},
      {{1, 900}, 448, {1, 12}, {1, 12}},  {{800, 600}, 448, {2, 5}, {2, 2}},
      {{1000, 333}, 30, {2, 5}, {3, 1}},  {{634, 634}, 448, {1, 12}, {2, 2}},
      {{633, 633}, 448, {1, 12}, {1, 1}}, {{1280, 720}, 448, {1, 6}, {2, 1}},
      {{5, 7}, 448, {3, 3}, {1, 3}}};
  for (const Case& c : cases)
    EXPECT_EQ(internvl::tile_grid(c.size, c.tile, c.bounds), c.grid)
        << c.size.width << "x" << c.size.height << " " << c.bounds.most;
}

std::shared_ptr<const family::ImageProcessor> processor(const Json& file,
                                                        const family::ImageRules& rules) {
  std::vector<std::string> notices;
  const family::ModelConfig config = parsed(tiny());
  return config.family->image_processor(
      config, {.json = file, .where = "preprocessor_config.json", .folder = "tiny"}, rules,
      &notices);
}

TEST(InternVlImages, PlanSaysWhatMakeMakes) {
  const auto made_by = processor({{"max_patches", 4}}, {.fit = "native"});
  const std::vector<uint8_t> rgb(static_cast<size_t>(120 * 60 * 3), 200);
  const family::ImagePlan plan = made_by->plan({120, 60});
  const family::TileImage made = made_by->make({.rgb_hwc = rgb.data(), .width = 120, .height = 60});
  EXPECT_EQ(plan.shape, made.shape);
  EXPECT_EQ(plan.shape.tiles, 3);  // 2 x 1 and the whole image
  EXPECT_EQ(made.values, std::vector<uint8_t>(static_cast<size_t>(3 * 3 * 56 * 56), 200));
  EXPECT_EQ(plan.text, "<img><IMG_CONTEXT></img>");
  EXPECT_EQ(plan.positions(), 3 * 16);
  EXPECT_EQ(plan.tower_positions, 3 * 65);
  EXPECT_EQ(made_by->plan({60, 60}).shape.tiles, 1);
}

TEST(InternVlImages, TheRecipesPixelsAreWholeTiles) {
  const family::ModelConfig config = parsed(tiny());
  const family::ImageRules rules = {.fit = "native", .max_pixels = 3 * 56 * 56 + 1};
  EXPECT_EQ(processor(Json::object(), rules)->plan({400, 100}).shape.tiles, 4);
  EXPECT_EQ(config.family->processor_fitted(config, {{"min_patches", 5}}, rules),
            (Json{{"min_patches", 3}, {"max_patches", 3}}));
  EXPECT_EQ(config.family->processor_fitted(config, {{"size", 56}}, {.fit = "native"}),
            (Json{{"size", 56}}));
}

TEST(InternVlImages, RefusesWhatItCannotTake) {
  const auto kind = [](const Json& file, const family::ImageRules& rules) {
    try {
      processor(file, rules);
    } catch (const Error& error) {
      return static_cast<int>(error.kind());
    }
    return -1;
  };
  const int usage = static_cast<int>(ErrorKind::kUsage),
            input = static_cast<int>(ErrorKind::kInput);
  EXPECT_EQ(kind(Json::object(), {.fit = "pad"}), usage);
  EXPECT_EQ(kind(Json::object(), {.fit = "native", .min_pixels = 100}), usage);
  EXPECT_EQ(kind({{"size", {{"height", 56}, {"width", 28}}}}, {.fit = "native"}), input);
  EXPECT_EQ(kind({{"max_patches", 0}}, {.fit = "native"}), input);
  EXPECT_EQ(kind({{"resample", 2}}, {.fit = "native"}), input);
  EXPECT_EQ(kind({{"size", 56}, {"crop_to_patches", false}}, {.fit = "native"}), -1);
}

/// Two by two patches of a tile of four by four, in rows.
TEST(PixelShuffle, APositionIsASquareOfPatches) {
  const at::Tensor shuffled = layers::pixel_shuffle(at::arange(16, at::kFloat).view({1, 16, 1}), 2);
  EXPECT_TRUE(shuffled.equal(at::tensor({0.f, 1.f, 4.f, 5.f, 2.f, 3.f, 6.f, 7.f, 8.f, 9.f, 12.f,
                                         13.f, 10.f, 11.f, 14.f, 15.f})
                                 .view({1, 4, 4})));
}

}  // namespace
}  // namespace lft::test::internvl_test
