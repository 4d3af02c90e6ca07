// Gemma 3: its config.json, tensors, names and images.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "kernels/common/error.h"
#include "models/family/model.h"
#include "models/gemma/gemma_images.h"
#include "models/registry/registry.h"

namespace lft::test::gemma_test {
namespace {

using Json = nlohmann::json;

Json tiny() {
  return {{"model_type", "gemma3"},
          {"mm_tokens_per_image", 4},
          {"image_token_index", 50},
          {"text_config",
           {{"hidden_size", 24},
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
            {"image_size", 28},
            {"patch_size", 7}}}};
}

family::ModelConfig parsed(const Json& json) { return registry::parse_config(json, "config.json"); }

std::string refused(const Json& json) {
  try {
    parsed(json);
  } catch (const Error& error) {
    return error.info().what;
  }
  return "";
}

TEST(GemmaFamily, TensorsAreTheModels) {
  for (const bool tied : {true, false}) {
    for (const bool head : {true, false}) {
      Json json = tiny();
      json["tie_word_embeddings"] = tied;
      json["vision_config"]["vision_use_head"] = head;
      const family::ModelConfig config = parsed(json);
      std::map<std::string, std::vector<int64_t>> listed, held;
      for (const family::TensorSpec& tensor : config.family->layout(config).tensors)
        listed[tensor.name] = tensor.shape;
      for (const auto& item :
           config.family->build(config, at::kFloat, at::kCPU, ops::BaseStorage::kDense)
               ->named_parameters())
        held[item.key()] = item.value().sizes().vec();
      EXPECT_EQ(listed, held);
      EXPECT_EQ(held.count("language_model.lm_head.weight"), tied ? 0u : 1u);
      EXPECT_EQ(config.family->layout(config).unused_modules.size(), head ? 1u : 0u);
    }
  }
}

/// Names in the published files, in transformers from 4.52 on, and from 5.6 on.
TEST(GemmaFamily, EverySpellingOfANameIsRead) {
  const family::ModelConfig config = parsed(tiny());
  const family::Family& family = *config.family;
  const std::string norm = "language_model.model.layers.1.pre_feedforward_layernorm.weight",
                    product = "multi_modal_projector.mm_input_projection_weight",
                    tower = "vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight";
  const std::vector<std::pair<std::string, std::string>> spellings = {
      {norm, norm},
      {"model.language_model.layers.1.pre_feedforward_layernorm.weight", norm},
      {product, product},
      {"model." + product, product},
      {tower, tower},
      {"model." + tower, tower},
      {"vision_tower.encoder.layers.0.mlp.fc1.weight", tower},
      {"model.vision_tower.encoder.layers.0.mlp.fc1.weight", tower},
      {"language_model.lm_head.weight", ""},  // tied
      {"lm_head.weight", ""},
      {"vision_tower.vision_model.embeddings.position_ids", ""},
      {"audio.weight", "audio.weight"}};
  for (const auto& [stored, canonical] : spellings)
    EXPECT_EQ(family.names.canonical_name(stored, config), canonical) << stored;
  EXPECT_EQ(family.names.peft_name("language_model.model.layers.1.mlp.up_proj"),
            "model.language_model.layers.1.mlp.up_proj");
  EXPECT_EQ(family.names.whole_name(tower), "model.vision_tower.encoder.layers.0.mlp.fc1.weight");
  EXPECT_EQ(family.names.from_peft_name("language_model.model.layers.1.mlp.up_proj"),
            "language_model.model.layers.1.mlp.up_proj");
  EXPECT_EQ(family.layout(config).projector.layers.front().weight(), product);
}

TEST(GemmaFamily, ConfigsThatCannotBeAreRefusedByField) {
  const auto with = [](const std::string& pointer, const Json& value) {
    Json json = tiny();
    json[Json::json_pointer(pointer)] = value;
    return refused(json);
  };
  for (const int64_t positions : {0, 2, 9, 25})  // positions of 4 x 4 patches
    EXPECT_NE(with("/mm_tokens_per_image", positions).find("mm_tokens_per_image"),
              std::string::npos)
        << positions;
  EXPECT_EQ(with("/mm_tokens_per_image", 16), "");
  EXPECT_NE(with("/text_config/model_type", "gemma2").find("model_type"), std::string::npos);
  EXPECT_NE(with("/vision_config/model_type", "clip_vision_model").find("model_type"),
            std::string::npos);
  EXPECT_NE(with("/text_config/final_logit_softcapping", 30).find("final_logit_softcapping"),
            std::string::npos);
  EXPECT_EQ(refused({{"model_type", "gemma3"},
                     {"vision_config", {{"image_size", 896}, {"patch_size", 14}}}}),
            "");
}

std::string images_refused(const Json& file, const family::ImageRules& rules) {
  const family::ModelConfig config = parsed(tiny());
  std::vector<std::string> notices;
  try {
    config.family->image_processor(config, {.json = file, .where = "file", .folder = "folder"},
                                   rules, &notices);
  } catch (const Error& error) {
    return error.info().what + " " + error.info().where;
  }
  return "";
}

TEST(GemmaFamily, StepsThatItDoesNotTakeAreRefusedByName) {
  const family::ImageRules native{.fit = "native"};
  for (const Json& fine :
       {Json::object(), Json{{"do_pan_and_scan", nullptr}, {"resample", 2}},
        Json{{"do_pan_and_scan", false}, {"size", {{"height", 28}, {"width", 28}}}}})
    EXPECT_EQ(images_refused(fine, native), "") << fine;
  const std::vector<std::pair<const char*, Json>> cases = {
      {"do_pan_and_scan", true},   {"do_pan_and_scan", "yes"},
      {"size", {{"height", 896}}}, {"size", 28},
      {"image_seq_length", 256},   {"resample", 3},
      {"do_resize", false},        {"rescale_factor", 1},
      {"image_mean", {0.5, 0.5}}};
  for (const auto& [key, value] : cases)
    EXPECT_NE(images_refused({{key, value}}, native).find(key), std::string::npos)
        << key << ' ' << value;
  EXPECT_NE(images_refused(Json::object(), {.fit = "pad"}).find("data.image_fit"),
            std::string::npos);
  EXPECT_NE(images_refused(Json::object(), {.fit = "native", .max_pixels = 9}).find("max_pixels"),
            std::string::npos);
}

/// Every image is one run in its text; a strip is stretched, a square of the right size unchanged.
TEST(GemmaFamily, AnImageIsTheSquareAndItsText) {
  const family::ModelConfig config = parsed(tiny());
  std::vector<std::string> notices;
  const Json nothing = Json::object();
  const auto processor = config.family->image_processor(
      config, {.json = nothing, .where = "", .folder = ""}, {.fit = "native"}, &notices);
  for (const image::Size size : {image::Size{1, 1}, image::Size{300, 1}, image::Size{28, 28}}) {
    const family::ImagePlan plan = processor->plan(size);
    EXPECT_EQ(plan.text, "\n\n<start_of_image><image_soft_token><end_of_image>\n\n");
    EXPECT_EQ(plan.runs, std::vector<int64_t>{4});
    EXPECT_EQ(plan.tower_positions, 16);
    std::vector<uint8_t> pixels(static_cast<size_t>(3 * size.width * size.height));
    for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i % 3 * 50);
    const family::TileImage made =
        processor->make({.rgb_hwc = pixels.data(), .width = size.width, .height = size.height});
    EXPECT_EQ(made.shape, plan.shape);
    ASSERT_EQ(made.values.size(), 3u * 28 * 28);
    for (size_t i = 0; i < made.values.size(); ++i) ASSERT_EQ(made.values[i], i / 784 * 50) << i;
  }
}

}  // namespace
}  // namespace lft::test::gemma_test
