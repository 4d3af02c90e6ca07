// config.json: transformers' defaults for missing fields, old and new spellings, and every wrong
// value refused with the name of its field.
#include "models/tiny.h"
#include "support/llava.h"

namespace lft::test::config_test {
namespace {

family::ModelConfig parse(const Json& json) { return llava::parse_llava(json, "config.json"); }

TEST(Config, OnlyLlavaMeansThe7bModel) {  // the defaults of transformers.LlavaConfig()
  const family::ModelConfig c = parse({{"model_type", "llava"}});
  EXPECT_EQ(c.text.hidden, 4096);
  EXPECT_EQ(c.text.intermediate, 11008);
  EXPECT_EQ(c.text.layers, 32);
  EXPECT_EQ(c.text.heads, 32);
  EXPECT_EQ(c.text.kv_heads, 32);
  EXPECT_EQ(c.text.head_dim, 128);
  EXPECT_EQ(c.text.vocab, 32000);
  EXPECT_EQ(c.text.max_positions, 2048);
  EXPECT_EQ(c.text.rms_norm_eps, 1e-6);
  EXPECT_EQ(c.text.rope_theta, 10000);
  EXPECT_EQ(c.text.rope_scaling.type, "default");
  EXPECT_FALSE(c.text.attention_bias || c.text.mlp_bias || c.text.tie_embeddings);
  EXPECT_EQ(vision_of(c).hidden, 1024);
  EXPECT_EQ(vision_of(c).intermediate, 4096);
  EXPECT_EQ(vision_of(c).layers, 24);
  EXPECT_EQ(vision_of(c).heads, 16);
  EXPECT_EQ(vision_of(c).image_size, 336);
  EXPECT_EQ(vision_of(c).patch_size, 14);
  EXPECT_EQ(vision_of(c).activation, "quick_gelu");
  EXPECT_EQ(vision_of(c).layer_norm_eps, 1e-5);
  EXPECT_EQ(c.image_token, 32000);
  EXPECT_EQ(c.bos_token, 1);
  EXPECT_EQ(c.eos_tokens, std::vector<int64_t>{2});
  EXPECT_EQ(fields(c).vision_feature_layers, std::vector<int64_t>{-2});
  EXPECT_EQ(positions_of(c), 576);
  EXPECT_TRUE(fields(c).projector_bias);
  EXPECT_EQ(fields(c).projector_activation, "gelu");
  EXPECT_EQ(tensors_of(c).size(), 3u + 4 + 24 * 16 + 4 + 32 * 9 + 3);
}

TEST(Config,
     AVisionConfigThatSaysLittleIsClipBase32) {  // CLIPVisionConfig's own defaults, not LLaVA's
  const family::ModelConfig c =
      parse({{"model_type", "llava"}, {"vision_config", Json::object()}, {"text_config", nullptr}});
  EXPECT_EQ(vision_of(c).hidden, 768);
  EXPECT_EQ(vision_of(c).layers, 12);
  EXPECT_EQ(vision_of(c).image_size, 224);
  EXPECT_EQ(vision_of(c).patch_size, 32);
}

TEST(Config, TheReleased7bFile) {
  const family::ModelConfig c = parse(
      Json::parse(R"({"architectures": ["LlavaForConditionalGeneration"], "ignore_index": -100, )"
                  R"("image_token_index": 32000,
    "model_type": "llava", "pad_token_id": 32001, "projector_hidden_act": "gelu",
    "text_config": {"_name_or_path": "lmsys/vicuna-7b-v1.5", )"
                  R"("architectures": ["LlamaForCausalLM"], "max_position_embeddings": 4096,
                    "model_type": "llama", "rms_norm_eps": 1e-05, "torch_dtype": "float16", )"
                  R"("vocab_size": 32064},
    "tie_word_embeddings": false, "torch_dtype": "float16",
    "vision_config": {"hidden_size": 1024, "image_size": 336, "intermediate_size": 4096, )"
                  R"("model_type": "clip_vision_model",
                      "num_attention_heads": 16, "num_hidden_layers": 24, "patch_size": 14, )"
                  R"("projection_dim": 768, "vocab_size": 32000},
    "vision_feature_layer": -2, "vision_feature_select_strategy": "default", )"
                  R"("vocab_size": 32064})"));
  EXPECT_EQ(c.text.vocab, 32064);
  EXPECT_EQ(c.text.rms_norm_eps, 1e-5);
  EXPECT_EQ(c.pad_token, 32001);
  EXPECT_EQ(c.stored_dtype, "float16");
}

TEST(Config, OldAndNewSpellingsAgree) {
  Json old_text = {{"rope_theta", 5e5},
                   {"rope_scaling",
                    {{"type", "llama3"},
                     {"factor", 8},
                     {"low_freq_factor", 1},
                     {"high_freq_factor", 4},
                     {"original_max_position_embeddings", 512}}}};
  Json new_text = {{"rope_parameters",
                    {{"rope_theta", 5e5},
                     {"rope_type", "llama3"},
                     {"factor", 8},
                     {"low_freq_factor", 1},
                     {"high_freq_factor", 4},
                     {"original_max_position_embeddings", 512}}}};
  const family::ModelConfig a = parse({{"model_type", "llava"},
                                       {"image_token_index", 7},
                                       {"torch_dtype", "bfloat16"},
                                       {"text_config", old_text}});
  const family::ModelConfig b = parse({{"model_type", "llava"},
                                       {"image_token_id", 7},
                                       {"dtype", "bfloat16"},
                                       {"text_config", new_text}});
  for (const family::ModelConfig& c : {a, b}) {
    EXPECT_EQ(c.image_token, 7);
    EXPECT_EQ(c.stored_dtype, "bfloat16");
    EXPECT_EQ(c.text.rope_theta, 5e5);
    EXPECT_EQ(c.text.rope_scaling.type, "llama3");
    EXPECT_EQ(c.text.rope_scaling.original_max_positions, 512);
  }
}

TEST(Config, NullIsSilence) {
  Json json = tiny_json();
  for (const char* key :
       {"head_dim", "num_key_value_heads", "rope_scaling", "pad_token_id", "eos_token_id"})
    json["text_config"][key] = nullptr;
  const family::ModelConfig c = parse(json);
  EXPECT_EQ(c.text.kv_heads, 4);
  EXPECT_EQ(c.text.head_dim, 8);
  EXPECT_EQ(c.pad_token, -1);
}

TEST(Config, SeveralEosAndFeatureLayers) {
  Json json = tiny_json();
  json["text_config"]["eos_token_id"] = {2, 5};
  json["vision_feature_layer"] = {-1, 0, 3};
  const family::ModelConfig c = parse(json);
  EXPECT_EQ(c.eos_tokens, (std::vector<int64_t>{2, 5}));
  EXPECT_EQ(fields(c).vision_feature_layers, (std::vector<int64_t>{-1, 0, 3}));
}

TEST(Config, EveryLieIsRefusedByTheNameOfItsField) {
  struct Lie {
    const char *section, *key, *value;
  };
  const Lie lies[] = {
      {"text_config", "hidden_size", "0"},
      {"text_config", "hidden_size", "-32"},
      {"text_config", "hidden_size", "3.7"},
      {"text_config", "hidden_size", "true"},
      {"text_config", "hidden_size", "\"32\""},
      {"text_config", "hidden_size", "2147483648"},
      {"text_config", "hidden_size", "18446744073709551615"},
      {"text_config", "intermediate_size", "0"},
      {"text_config", "num_hidden_layers", "0"},
      {"text_config", "num_hidden_layers", "1000000000"},
      {"text_config", "num_attention_heads", "2147483648"},
      {"text_config", "num_attention_heads", "3"},
      {"text_config", "num_key_value_heads", "3"},
      {"text_config", "num_key_value_heads", "8"},
      {"text_config", "head_dim", "9"},
      {"text_config", "head_dim", "9223372036854775807"},
      {"text_config", "vocab_size", "0"},
      {"text_config", "rms_norm_eps", "0"},
      {"text_config", "rms_norm_eps", "\"small\""},
      {"text_config", "rope_theta", "0"},
      {"text_config", "rope_theta", "-1"},
      {"text_config", "model_type", "\"gpt2\""},
      {"text_config", "hidden_act", "\"gelu\""},
      {"text_config", "attention_bias", "1"},
      {"text_config", "max_position_embeddings", "0"},
      {"text_config", "eos_token_id", "[2, \"x\"]"},
      {"vision_config", "hidden_size", "0"},
      {"vision_config", "num_attention_heads", "5"},
      {"vision_config", "num_channels", "1"},
      {"vision_config", "image_size", "-18"},
      {"vision_config", "image_size", "[18, 24]"},
      {"vision_config", "patch_size", "0"},
      {"vision_config", "patch_size", "19"},
      {"vision_config", "hidden_act", "\"tanh\""},
      {"vision_config", "model_type", "\"vit\""},
      {"", "vision_feature_layer", "4"},
      {"", "vision_feature_layer", "-5"},
      {"", "vision_feature_layer", "[]"},
      {"", "vision_feature_layer", "[0, 9]"},
      {"", "vision_feature_select_strategy", "\"cls\""},
      {"", "image_token_index", "-1"},
      {"", "projector_hidden_act", "\"mish\""},
      {"", "model_type", "\"llava_next\""},
      {"", "torch_dtype", "\"float64\""},
      {"", "text_config", "[]"},
      {"", "text_config", "7"},
  };
  for (const Lie& lie : lies) {
    Json json = tiny_json();
    Json& object = *lie.section == '\0' ? json : json[lie.section];
    object[lie.key] = Json::parse(lie.value);
    const ErrorInfo info = error_of([&] { parse(json); }, ErrorKind::kInput);
    EXPECT_NE((info.what + info.where).find(lie.key), std::string::npos)
        << lie.key << " = " << lie.value << ": " << info.what;
    EXPECT_FALSE(info.expected.empty()) << lie.key;
  }
  EXPECT_EQ(error_of([] { parse(Json::object()); }, ErrorKind::kInput).where,
            "config.json: model_type");
  error_of([] { parse(Json::array()); }, ErrorKind::kInput);
}

TEST(Config, RopeScalingIsComplete) {
  const char* bad[] = {
      R"({"rope_type": "linear"})",
      R"({"rope_type": "su", "factor": 2})",
      R"({"rope_type": "dynamic"})",
      R"({"rope_type": "yarn", "factor": 2, "beta_fast": -1})",
      R"({"rope_type": "yarn", "factor": 2, "rope_theta": 1})",
      R"({"rope_type": "longrope", "short_factor": [1, 1, 1, 1]})",
      R"({"rope_type": "longrope", "short_factor": [1], "long_factor": [1]})",
      R"({"rope_type": "longrope", "short_factor": ["x"], "long_factor": 5})",
      R"({"rope_type": "llama3", "factor": 2, "low_freq_factor": 1})",
      R"({"rope_type": "llama3", "factor": 2, "low_freq_factor": 4, "high_freq_factor": 4})",
      R"({"rope_type": "linear", "factor": 0})",
      R"({"rope_theta": 0})",
      R"({"partial_rotary_factor": 0.5})"};
  for (const char* rope : bad) {
    Json json = tiny_json();
    json["text_config"]["rope_parameters"] = Json::parse(rope);
    EXPECT_NE(error_of([&] { parse(json); }, ErrorKind::kInput).where.find("rope_parameters."),
              std::string::npos)
        << rope;
  }
}

}  // namespace
}  // namespace lft::test::config_test
