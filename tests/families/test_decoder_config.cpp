// Text parts of config.json other than LLaVA's: transformers' defaults for missing fields.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kernels/common/error.h"
#include "models/family/config.h"
#include "models/llama/config.h"

namespace lft::test::decoder_config_test {
namespace {

using Json = nlohmann::json;

llama::LlamaConfig parsed(const Json& json, const std::vector<std::string>& types) {
  const std::string file = "file";
  return llama::parse_llama_config(ConfigFields(json, "text_config.", file), types);
}

std::string refused(const Json& json, const std::vector<std::string>& types) {
  try {
    parsed(json, types);
  } catch (const Error& error) {
    return error.info().what;
  }
  return "";
}

TEST(DecoderConfig, SilentFilesHaveTransformersDefaults) {
  const llama::LlamaConfig mistral = parsed({{"sliding_window", nullptr}}, {"mistral"}),
                           qwen2 = parsed(Json::object(), {"qwen2"}),
                           qwen2_5 = parsed(Json::object(), {"qwen2_5_vl_text"}),
                           qwen3 = parsed(Json::object(), {"qwen3_vl_text"});
  EXPECT_EQ(mistral.intermediate, 14336);
  EXPECT_EQ(mistral.kv_heads, 8);
  EXPECT_EQ(mistral.head_dim, 128);
  EXPECT_EQ(mistral.max_positions, 131072);
  EXPECT_FALSE(mistral.has_qkv_bias());
  EXPECT_EQ(qwen2.vocab, 151936);
  EXPECT_TRUE(qwen2.has_qkv_bias());
  EXPECT_FALSE(qwen2.attention_bias);
  EXPECT_EQ(qwen2_5.hidden, 8192);
  EXPECT_EQ(qwen2_5.kv_heads, 8);
  EXPECT_EQ(qwen2_5.rope_theta, 1e6);
  EXPECT_EQ(qwen2_5.mrope_section, (std::vector<int64_t>{16, 24, 24}));
  EXPECT_EQ(qwen3.head_dim, 128);
  EXPECT_EQ(qwen3.rope_theta, 5e5);
  EXPECT_TRUE(qwen3.qk_norm && qwen3.mrope_interleaved);
}

TEST(DecoderConfig, AHeadMayBeOfAnySizeWhereTheTypeSaysSo) {
  const Json odd = {{"hidden_size", 100},
                    {"num_attention_heads", 8},
                    {"num_key_value_heads", 2},
                    {"head_dim", 32},
                    {"sliding_window", nullptr}};
  EXPECT_EQ(parsed(odd, {"mistral"}).head_dim, 32);
  EXPECT_EQ(parsed(odd, {"qwen3_vl_text"}).head_dim, 32);
  EXPECT_NE(refused(odd, {"llama"}).find("num_attention_heads"), std::string::npos);
}

TEST(DecoderConfig, LayersHaveTheWindowThatTransformersGivesThem) {
  const auto slides = [](const Json& fields, const char* type) {
    const llama::LlamaConfig config = parsed(fields, {type});
    return std::pair(config.window, config.slides);
  };
  const auto none = std::pair(int64_t{0}, std::vector<bool>());
  Json fields = {{"num_hidden_layers", 3}, {"sliding_window", 64}};
  EXPECT_EQ(slides(fields, "mistral"), std::pair(int64_t{64}, std::vector<bool>(3, true)));
  EXPECT_EQ(slides({{"num_hidden_layers", 2}}, "mistral"),
            std::pair(int64_t{4096}, std::vector<bool>(2, true)));
  EXPECT_EQ(slides({{"sliding_window", nullptr}}, "mistral"), none);
  EXPECT_EQ(slides({{"sliding_window", 4096}, {"max_position_embeddings", 4096}}, "mistral"), none);
  EXPECT_EQ(slides(fields, "qwen2"), none);
  fields["use_sliding_window"] = true;
  EXPECT_EQ(slides(fields, "qwen2"), none);  // max_window_layers is 28
  fields["max_window_layers"] = 1;
  EXPECT_EQ(slides(fields, "qwen2"), std::pair(int64_t{64}, std::vector<bool>{false, true, true}));
  fields["layer_types"] = {"sliding_attention", "full_attention", "full_attention"};
  EXPECT_EQ(slides(fields, "qwen2"), std::pair(int64_t{64}, std::vector<bool>{true, false, false}));
  EXPECT_NE(refused({{"sliding_window", 0}}, {"mistral"}).find("sliding_window"),
            std::string::npos);
}

TEST(DecoderConfig, TypesThatTheCallerDoesNotTakeAreRefused) {
  EXPECT_NE(refused({{"model_type", "qwen2"}}, {"llama"}).find("model_type"), std::string::npos);
  EXPECT_EQ(parsed({{"model_type", "qwen2"}}, {"llama", "mistral", "qwen2"}).vocab, 151936);
}

llama::LlamaConfig gemma3(const Json& json) { return parsed(json, {"gemma3_text"}); }

TEST(DecoderConfig, Gemma3sSilentFileIsThePublishedForm) {
  const llama::LlamaConfig silent = gemma3(Json::object());
  EXPECT_EQ(silent.hidden, 2304);
  EXPECT_EQ(silent.head_dim, 256);
  EXPECT_EQ(silent.window, 4096);
  EXPECT_EQ(silent.rope_theta, 1e6);
  EXPECT_EQ(silent.local_rope_theta, 1e4);
  EXPECT_TRUE(silent.tie_embeddings && silent.qk_norm && silent.image_blocks);
  ASSERT_EQ(silent.slides.size(), 26u);
  for (size_t i = 0; i < 26; ++i) EXPECT_EQ(silent.slides_at(i), i % 6 != 5) << i;
  EXPECT_FALSE(silent.slides_at(26));
}

/// A published file as written by transformers before 5, and by 5.
TEST(DecoderConfig, Gemma3sRopesInOldAndNewSpelling) {
  const Json old_way = {{"rope_theta", 5e5},
                        {"rope_local_base_freq", 777.0},
                        {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}}};
  const Json new_way = {
      {"rope_parameters",
       {{"full_attention", {{"rope_theta", 5e5}, {"rope_type", "linear"}, {"factor", 8.0}}},
        {"sliding_attention", {{"rope_theta", 777.0}, {"rope_type", "default"}}}}}};
  for (const Json& json : {old_way, new_way}) {
    const llama::LlamaConfig config = gemma3(json);
    EXPECT_EQ(config.rope_theta, 5e5);
    EXPECT_EQ(config.rope_scaling.type, "linear");
    EXPECT_EQ(config.rope_scaling.factor, 8);
    EXPECT_EQ(config.local_rope_theta, 777);
    EXPECT_EQ(config.local_rope_scaling.type, "default");
  }
  EXPECT_EQ(family::fingerprint_of_decoder(gemma3(old_way)),
            family::fingerprint_of_decoder(gemma3(new_way)));
}

TEST(DecoderConfig, Gemma3sLayersByNameOrByPattern) {
  const std::string full = "full_attention", sliding = "sliding_attention";
  const llama::LlamaConfig named = gemma3({{"num_hidden_layers", 3},
                                           {"layer_types", {sliding, full, sliding}},
                                           {"sliding_window_pattern", 3}}),
                           pattern =
                               gemma3({{"num_hidden_layers", 4}, {"sliding_window_pattern", 2}});
  EXPECT_EQ(named.slides, (std::vector<bool>{true, false, true}));
  EXPECT_EQ(pattern.slides, (std::vector<bool>{true, false, true, false}));
  EXPECT_NE(family::fingerprint_of_decoder(named), family::fingerprint_of_decoder(pattern));
}

TEST(DecoderConfig, WhatGemma3DoesNotComputeIsRefusedByName) {
  const std::vector<std::string> types = {"gemma3_text"};
  const std::vector<std::pair<const char*, Json>> cases = {
      {"attn_logit_softcapping", 50.0},
      {"final_logit_softcapping", 30.0},
      {"use_bidirectional_attention", true},
      {"hidden_activation", "silu"},
      {"sliding_window", nullptr},
      {"sliding_window", 0},
      {"sliding_window_pattern", 0},
      {"query_pre_attn_scalar", 0},
      {"layer_types", {"full_attention"}},
      {"layer_types", std::vector<std::string>(26, "chunked_attention")},
      {"layer_types", 7},
      {"rope_parameters", {{"rope_theta", 1e6}}},
      {"rope_parameters", {{"full_attention", {{"rope_type", "su"}}}}},
      {"rope_scaling", {{"rope_type", "linear"}}}};
  for (const auto& [key, value] : cases)
    EXPECT_NE(refused({{key, value}}, types).find(std::string(key).substr(0, 4)), std::string::npos)
        << key << ' ' << value;
  EXPECT_EQ(refused({{"final_logit_softcapping", nullptr}}, types), "");
}

/// Older adapters and checkpoints contain this text of a Llama.
TEST(DecoderConfig, ALlamasFingerprintStays) {
  EXPECT_EQ(family::fingerprint_of_decoder(llama::LlamaConfig()),
            "4096 11008 32 32 32 128 32000 2048 9.9999999999999995e-07 10000 default 1 1 4 8192 "
            "000");
}

}  // namespace
}  // namespace lft::test::decoder_config_test
