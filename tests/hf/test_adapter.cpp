#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <gtest/gtest.h>

#include "hf/support.h"
#include "models/family/model.h"
#include "models/lora/inject_select.h"
#include "src/hf/adapter/adapter_files.h"
#include "src/hf/adapter/adapter_load.h"
#include "src/hf/adapter/adapter_notes.h"
#include "src/hf/adapter/adapter_save.h"
#include "src/hf/adapter/missing_layers.h"
#include "src/hf/adapter/target_names.h"
#include "src/hf/model_dir_fingerprint.h"
#include "src/hf/weights.h"
#include "src/hf/weights_load.h"
#include "src/io/json.h"

namespace lft::adapter_test {
using namespace lft::test;
namespace {

// Written by peft 0.21.2 for get_peft_model(llava, LoraConfig(r=4, lora_alpha=8,
// target_modules=regex, init_lora_weights=False, task_type="CAUSAL_LM")).
constexpr const char* kPeftConfig =
    R"json({"alora_invocation_tokens": null, "alpha_pattern": {}, "arrow_config": null, )json"
    R"json("auto_mapping": null,
"base_model_name_or_path": "base", "bias": "none", "corda_config": null, )json"
    R"json("ensure_weight_tying": false, "eva_config": null,
"exclude_modules": null, "fan_in_fan_out": false, "inference_mode": true, )json"
    R"json("init_lora_weights": false, "kasa_config": null,
"layer_replication": null, "layers_pattern": null, "layers_to_transform": null, )json"
    R"json("loftq_config": {}, "lora_alpha": 8,
"lora_bias": false, "lora_dropout": 0.0, "lora_ga_config": null, "megatron_config": null, )json"
    R"json("megatron_core": "megatron.core",
"modules_to_save": null, "monteclora_config": null, "peft_type": "LORA", )json"
    R"json("peft_version": "0.21.2", "qalora_group_size": 16,
"r": 4, "rank_pattern": {}, "revision": null,
"target_modules": "model\\.language_model\\.layers\\.\\d+\\.self_attn\\.(q_proj|v_proj)", )json"
    R"json("target_parameters": null,
"task_type": "CAUSAL_LM", "trainable_token_indices": null, "use_bdlora": null, )json"
    R"json("use_dora": false, "use_qalora": false,
"use_rslora": false, "velora_config": null})json";

class Adapter : public ::testing::Test {
 protected:
  Adapter() : base_(write_tiny_llava(temp_.file("base"))) {}
  Model load(const std::string& adapter) {
    Model model = load_tiny(base_);
    load_adapter(model, AdapterDir::open(adapter));
    return model;
  }
  void refuses(const TinyAdapter& adapter, const std::string& piece,
               const std::function<void(StoredTensors&)>& change = nullptr) {
    const std::string dir = adapter.write(temp_.file("bad-" + std::to_string(++number_)), change);
    EXPECT_LFT_ERROR(ErrorKind::kInput, piece, load(dir));
  }
  TempDir temp_;
  std::string base_;
  int number_ = 0;
};

TEST_F(Adapter, DialectsAgree) {
  Model plain = load_tiny(base_);
  // The same module has the same numbers in every dialect only if the seeds have the same order;
  // they do, because the names sort alike.
  Model d2 = load(adapter_in("d2").write(temp_.file("d2")));
  Model d3 = load(adapter_in("d3").write(temp_.file("d3")));
  const at::Tensor want = logits_of(d2);
  EXPECT_GT((want - logits_of(plain)).abs().max().item<float>(), 0.01f);
  EXPECT_TRUE(want.equal(logits_of(d3)));

  const StoredTensors stored = adapter_in("d2").tensors();
  const std::string d1 = adapter_in("d1").write(temp_.file("d1"), [&](StoredTensors& tensors) {
    for (auto& [name, tensor] : tensors) {
      std::string other = name;
      const std::string llm = "base_model.model.language_model.model.";
      if (name.starts_with(llm))
        other = "base_model.model.model.language_model." + name.substr(llm.size());
      else
        other.insert(std::string("base_model.model.").size(), "model.");
      tensor = stored.at(other);
    }
  });
  Model old = load(d1);
  EXPECT_TRUE(want.equal(logits_of(old)));
}

TEST_F(Adapter, OriginalLlavaKeysOfTheLanguageModel) {
  TinyAdapter original, d2;
  original.lora = {{"model.layers.0.self_attn.q_proj", {32, 32}}};
  d2.lora = {{"model.language_model.layers.0.self_attn.q_proj", {32, 32}}};
  Model a = load(original.write(temp_.file("original"))), b = load(d2.write(temp_.file("d2")));
  EXPECT_TRUE(logits_of(a).equal(logits_of(b)));
}

TEST_F(Adapter, DeltaIsScaleTimesBTimesA) {
  for (const bool rslora : {false, true}) {
    TinyAdapter adapter;
    adapter.lora = {{"model.language_model.layers.0.self_attn.q_proj", {32, 32}}};
    adapter.config["use_rslora"] = rslora;
    Model model = load(adapter.write(temp_.file(rslora ? "rs" : "plain")));
    const StoredTensors stored = adapter.tensors();
    const std::string prefix =
        "base_model.model.model.language_model.layers.0.self_attn.q_proj.lora_";
    const auto* a = reinterpret_cast<const float*>(stored.at(prefix + "A.weight").bytes.data());
    const auto* b = reinterpret_cast<const float*>(stored.at(prefix + "B.weight").bytes.data());
    const at::Tensor delta =
        (*model->language_model->model->layers)[0]->self_attn->q_proj->adapter()->merged_oi(
            at::zeros({32, 32}));
    const double scale = rslora ? 3.0 / std::sqrt(2.0) : 1.5;
    for (const int64_t o : {0, 5, 31}) {
      for (const int64_t i : {0, 17, 31}) {
        const double want = scale * (double(b[o * 2]) * a[i] + double(b[o * 2 + 1]) * a[32 + i]);
        EXPECT_NEAR(delta[o][i].item<double>(), want,
                    4e-7 * (std::abs(want) + 1));  // a few roundings of numbers near 1
      }
    }
  }
}

TEST_F(Adapter, SavedWholeReplacesTheBase) {
  TinyAdapter adapter = adapter_in("d2");
  adapter.lora.erase("model.multi_modal_projector.linear_1");
  adapter.full = projector_tensors();
  adapter.config["modules_to_save"] = {"multi_modal_projector"};
  Model model = load(adapter.write(temp_.file("a")));
  const std::string stored =
      adapter.tensors().at("base_model.model.model.multi_modal_projector.linear_1.bias").bytes;
  const at::Tensor bias = as_llava(model).multi_modal_projector->linear_1->bias.contiguous();
  EXPECT_EQ(std::memcmp(bias.const_data_ptr(), stored.data(), stored.size()), 0);

  // Kept in FP32 even if the base is not.
  Model narrow = load_tiny(base_, at::kBFloat16);
  load_adapter(narrow, AdapterDir::open(temp_.file("a")));
  EXPECT_EQ(as_llava(narrow).multi_modal_projector->linear_1->weight.scalar_type(), at::kFloat);

  refuses(adapter, "1 missing of modules_to_save", [](StoredTensors& tensors) {
    tensors.erase("base_model.model.model.multi_modal_projector.linear_2.bias");
  });
  adapter.config["modules_to_save"] = {"multi_modal_projector", "lm_head"};
  refuses(adapter, "1 missing of modules_to_save:\n      language_model.lm_head.weight");
  // PEFT ignores modules that the model does not have.
  adapter.config["modules_to_save"] = {"multi_modal_projector", "blocks.63"};
  EXPECT_NO_THROW(load(adapter.write(temp_.file("more"))));
  adapter.config["modules_to_save"] = nullptr;
  refuses(adapter, "4 unknown");
}

/// PEFT selects every module whose name ends in one of modules_to_save, even within a word.
TEST_F(Adapter, SavedWholeAreTheModulesWhoseNamesEndSo) {
  TinyAdapter adapter = adapter_in("d2");
  const std::string decoder = "model.language_model.", norm = "norm.weight";
  adapter.full = {{decoder + norm, {32}}};
  for (const char* layer : {"layers.0.", "layers.1."}) {
    for (const char* name : {"input_layer", "post_attention_layer"})
      adapter.full[decoder + layer + name + norm] = {32};
  }
  for (const char* name : {"pre_layr", "post_layer"}) {
    for (const char* part : {"norm.weight", "norm.bias"})
      adapter.full["model.vision_tower.vision_model." + std::string(name) + part] = {24};
  }
  adapter.config["modules_to_save"] = {"norm"};
  Model model = load(adapter.write(temp_.file("norms")));
  EXPECT_EQ(AdapterDir::open(temp_.file("norms")).full_tensors.size(), adapter.full.size());
  refuses(adapter, "1 missing of modules_to_save", [&](StoredTensors& tensors) {
    tensors.erase("base_model.model." + decoder + "layers.1.input_layer" + norm);
  });
}

/// Loaded into a model whose decoder stays on disk, a fully trained weight is still used.
TEST_F(Adapter, AWholeWeightTakesThePlaceOfOneInAFile) {
  TinyAdapter adapter = adapter_in("d2");
  for (const char* layer : {"layers.0.", "layers.1."})
    adapter.full["model.language_model." + std::string(layer) + "self_attn.o_proj.weight"] = {32,
                                                                                              32};
  adapter.config["modules_to_save"] = {"o_proj"};
  Model dense = load(adapter.write(temp_.file("a")));
  const auto dir = std::make_shared<const ModelDir>(ModelDir::open(base_));
  Model in_files = load_model(*dir, at::kFloat, at::kCPU, true, {.in_files = dir});
  Model plain = load_model(*dir, at::kFloat, at::kCPU, true, {.in_files = dir});
  load_adapter(in_files, AdapterDir::open(temp_.file("a")));
  const at::Tensor want = logits_of(dense);
  EXPECT_TRUE(logits_of(in_files).equal(want));
  EXPECT_GT((want - logits_of(plain)).abs().max().item<float>(), 0.01f);
}

TEST_F(Adapter, LayersThatTargetModulesNamesAndTheFileLacksAreTold) {
  const auto told = [&](const nlohmann::json& config) {
    TinyAdapter adapter = adapter_in("d2");
    for (const char* layer : {"0", "1"})
      adapter.lora["model.language_model.layers." + std::string(layer) + ".mlp.up_proj"] = {32, 48};
    adapter.config.update(config);
    const AdapterDir dir =
        AdapterDir::open(adapter.write(temp_.file("half-" + std::to_string(++number_))));
    ::testing::internal::CaptureStderr();
    warn_of_missing_layers(dir, ModelDir::open(base_).config);
    return ::testing::internal::GetCapturedStderr();
  };
  const std::string text =
      told({{"target_modules", {"q_proj", "v_proj", "down_proj", "up_proj", "linear_1", "fc1"}},
            {"exclude_modules", ".*vision_tower.*_proj"}});
  EXPECT_NE(text.find("names 4 layers without tensors in adapter_model.safetensors: "
                      "vision_tower.vision_model.encoder.layers.1.mlp.fc1, "
                      "language_model.model.layers.0.self_attn.v_proj, "
                      "language_model.model.layers.0.mlp.down_proj, "
                      "language_model.model.layers.1.self_attn.q_proj. "),
            std::string::npos)
      << text;
  EXPECT_EQ(told({{"target_modules", {"up_proj"}}}), "");
  EXPECT_EQ(told({{"target_modules", nullptr}}), "");
  // Only in Python's regular expressions: no message.
  EXPECT_EQ(told({{"target_modules", ".*[[]q_proj"}}), "");
}

TEST_F(Adapter, RealConfigsPass) {
  TinyAdapter adapter = adapter_in("d3");
  adapter.config = parse_json(kPeftConfig, "peft");
  adapter.rank = 4;
  const AdapterDir dir = AdapterDir::open(adapter.write(temp_.file("a")));
  EXPECT_TRUE(dir.inference_mode);
  EXPECT_EQ(dir.lora.rank, 4);
  EXPECT_EQ(dir.lora.alpha, 8);
  EXPECT_EQ(dir.lora_modules.size(), 5u);
  EXPECT_EQ(dir.notes.base_path, "");
}

/// PEFT writes the settings of an initialisation next to tensors that do not depend on them, also
/// after it has converted them for the original base.
TEST_F(Adapter, SettingsOfInitialisationsPass) {
  const std::vector<std::pair<nlohmann::json, const char*>> initialised = {
      {"eva", "eva_config"},  {"mica", "eva_config"},   {"orthogonal", "eva_config"},
      {true, "corda_config"}, {true, "lora_ga_config"}, {true, "loftq_config"}};
  for (const auto& [value, key] : initialised) {
    TinyAdapter adapter = adapter_in("d2");
    adapter.config["init_lora_weights"] = value;
    adapter.config[key] = {{"rho", 2.0}, {"cache_file", nullptr}};
    load(adapter.write(temp_.file("initialised-" + std::to_string(++number_))));
  }
  for (const char* changes : {"corda", "lora_ga", "loftq", "olora", "pissa_niter_4"}) {
    TinyAdapter adapter = adapter_in("d2");
    adapter.config["init_lora_weights"] = changes;
    refuses(adapter, "the adapter was trained on a changed base");
  }
}

TEST_F(Adapter, WhatLftLacksIsRefusedByName) {
  const std::vector<std::pair<std::string, nlohmann::json>> lacking = {
      {"rank_pattern", {{"q_proj", 0}}},
      {"rank_pattern", {{"q_proj", 2.5}}},
      {"rank_pattern", {{"(", 2}}},
      {"alpha_pattern", {{"q_proj", -4}}},
      {"alpha_pattern", {{"q_proj", "4"}}},
      {"bias", "all"},
      {"bias", "lora_only"},
      {"fan_in_fan_out", true},
      {"init_lora_weights", "pissa"},
      {"use_qalora", true},
      {"target_parameters", {"x"}},
      {"trainable_token_indices", {1, 2}},
      {"layer_replication", {{0, 1}}},
      {"key_of_the_future", 1},
      {"qalora_group_size", 8},
      {"megatron_core", "other"},
      {"peft_type", "LOHA"},
      {"peft_type", nullptr}};
  for (const auto& [key, value] : lacking) {
    TinyAdapter adapter = adapter_in("d2");
    adapter.config[key] = value;
    refuses(adapter, key);
    refuses(adapter, value.is_object() ? value.begin().key() : value.dump());
  }
}

/// A key is an expression for the whole name or its end; the first match in order is used.
TEST_F(Adapter, PatternsGiveModulesTheirRankAndAlpha) {
  TinyAdapter adapter = adapter_in("d1");
  adapter.config["exclude_modules"] = "x.*";
  adapter.config["layers_to_transform"] = {0, 1};
  adapter.config["alpha_pattern"] = {{"layers.1.self_attn.v_proj", 9},
                                     {R"(.*layers\.\d\.(self_attn|mlp)\..*)", 5},
                                     {"model.multi_modal_projector.linear_1", 7}};
  const AdapterDir dir = AdapterDir::open(adapter.write(temp_.file("patterns")));
  EXPECT_EQ(dir.lora.of("language_model.model.layers.0.self_attn.q_proj").alpha, 5);
  EXPECT_EQ(dir.lora.of("language_model.model.layers.1.self_attn.v_proj").alpha, 5);  // "." first
  EXPECT_EQ(dir.lora.of("vision_tower.vision_model.encoder.layers.0.mlp.fc1").alpha, 5);
  // The name used by newer versions of transformers.
  EXPECT_EQ(dir.lora.of("multi_modal_projector.linear_1").alpha, 7);
  EXPECT_EQ(dir.lora.alpha, 3);

  adapter = adapter_in("d2");
  adapter.config["rank_pattern"] = {{"q_proj", 4}};
  refuses(adapter, "2 of another rank than adapter_config.json says");
}

/// PEFT uses the first key of the file, which it has sorted only if PEFT has written it.
TEST_F(Adapter, TheFirstPatternOfTheFileIsUsed) {
  TinyAdapter adapter = adapter_in("d2");
  const std::string path = adapter.write(temp_.file("order"));
  const auto alpha_of_q = [&](const nlohmann::ordered_json& patterns) {
    nlohmann::ordered_json config = adapter.config;
    config["alpha_pattern"] = patterns;
    write_file_atomic(path + "/adapter_config.json", config.dump());
    return AdapterDir::open(path).lora.of("language_model.model.layers.0.self_attn.q_proj").alpha;
  };
  EXPECT_EQ(alpha_of_q({{"q_proj", 2}, {R"(layers\.0\..*)", 50}}), 2);
  EXPECT_EQ(alpha_of_q({{R"(layers\.0\..*)", 50}, {"q_proj", 2}}), 50);
}

TEST_F(Adapter, ConfigValuesOutOfRange) {
  const std::vector<std::pair<std::string, nlohmann::json>> wrong = {
      {"r", 0},
      {"r", -1},
      {"r", 2.5},
      {"r", "2"},
      {"lora_alpha", 0},
      {"lora_alpha", "x"},
      {"lora_dropout", 2},
      {"use_rslora", "yes"},
      {"use_dora", 1},
      {"modules_to_save", "projector"},
      {"modules_to_save", {1}}};
  for (const auto& [key, value] : wrong) {
    TinyAdapter adapter = adapter_in("d2");
    adapter.config[key] = value;
    refuses(adapter, key);
  }
}

TEST_F(Adapter, TensorsThatDoNotFit) {
  const std::string q = "base_model.model.model.language_model.layers.0.self_attn.q_proj";
  const TinyAdapter good = adapter_in("d2");
  refuses(good, "self_attn.q_proj: lora_A without lora_B",
          [&](StoredTensors& t) { t.erase(q + ".lora_B.weight"); });
  refuses(good, "self_attn.q_proj: lora_B without lora_A",
          [&](StoredTensors& t) { t.erase(q + ".lora_A.weight"); });
  refuses(good, "1 unknown:\n      nonsense",
          [&](StoredTensors& t) { t["nonsense"] = t.at(q + ".lora_A.weight"); });
  refuses(good, "lora_magnitude_vector", [&](StoredTensors& t) {
    t[q + ".lora_magnitude_vector"] = random_tensor({32}, DType::kF32, 1, 0, 1);
  });
  refuses(good, "of another rank than adapter_config.json says", [&](StoredTensors& t) {
    t[q + ".lora_A.weight"] = random_tensor({3, 32}, DType::kF32, 1, 0, 1);
  });
  refuses(good, "found [2, 31], expected [2, 32]", [&](StoredTensors& t) {
    t[q + ".lora_A.weight"] = random_tensor({2, 31}, DType::kF32, 1, 0, 1);
  });
  refuses(good, "stored twice", [&](StoredTensors& t) {
    const std::string old = "base_model.model.language_model.model.layers.0.self_attn.q_proj";
    t[old + ".lora_A.weight"] = t.at(q + ".lora_A.weight");
    t[old + ".lora_B.weight"] = t.at(q + ".lora_B.weight");
  });
  refuses(good, "language_model.model.layers.9.self_attn.q_proj", [&](StoredTensors& t) {
    const std::string far = "base_model.model.model.language_model.layers.9.self_attn.q_proj";
    t[far + ".lora_A.weight"] = t.at(q + ".lora_A.weight");
    t[far + ".lora_B.weight"] = t.at(q + ".lora_B.weight");
  });
  refuses(good, "not finite", [&](StoredTensors& t) {
    t.at(q + ".lora_A.weight").bytes.replace(0, 4, std::string("\0\0\x80\x7f", 4));
  });
  refuses(good, "found I32",
          [&](StoredTensors& t) { t.at(q + ".lora_A.weight").dtype = DType::kI32; });
}

TEST_F(Adapter, AConfigWithoutAlphaOrOfAnotherRankIsRefused) {
  TinyAdapter adapter = adapter_in("d2");
  adapter.config.erase("lora_alpha");
  refuses(adapter, "lora_alpha");
  adapter = adapter_in("d2");
  adapter.config["r"] = 3;
  refuses(adapter, "of another rank than adapter_config.json says");
}

TEST_F(Adapter, TensorsThatTargetModulesDoesNotNameAreTold) {
  const auto told = [&](const nlohmann::json& config) {
    TinyAdapter adapter = adapter_in("d2");
    adapter.config.update(config);
    const std::string dir = adapter.write(temp_.file("targets-" + std::to_string(++number_)));
    ::testing::internal::CaptureStderr();
    AdapterDir::open(dir);
    return ::testing::internal::GetCapturedStderr();
  };
  const nlohmann::json all = {"q_proj", "v_proj", "down_proj", "linear_1", "fc1"};
  EXPECT_EQ(told({{"target_modules", all}}), "");
  EXPECT_EQ(told({{"target_modules", "a.*pattern"}}), "");
  EXPECT_EQ(told({{"target_modules", nullptr}}), "");
  // PEFT ignores names that the model does not have, and layers that another key leaves out.
  nlohmann::json more = all;
  more.insert(more.end(), {"k_projection", "linear_2", "qkv"});
  EXPECT_EQ(told({{"target_modules", more}}), "");
  EXPECT_EQ(told({{"target_modules", more}, {"exclude_modules", ".*linear_2"}}), "");
  const std::string other = told({{"target_modules", {"k_projection"}}});
  EXPECT_NE(other.find("contradicts the tensors: tensors that it does not name, of model."),
            std::string::npos)
      << other;
  for (const nlohmann::json& restriction : std::vector<nlohmann::json>{
           {{"exclude_modules", {"self_attn.q_proj"}}},
           {{"layers_to_transform", {1}}, {"layers_pattern", "language_model.(layers|blocks)"}},
           {{"modules_to_save", {"layers.0"}}}}) {
    nlohmann::json config = {{"target_modules", all}};
    config.update(restriction);
    EXPECT_NE(told(config).find("layers.0.self_attn.q_proj"), std::string::npos) << config;
  }
}

/// Modules of modules_to_save get no LoRA, also if target_modules names them.
TEST_F(Adapter, LayersInModulesThatAreSavedWholeAreNotMissing) {
  TinyAdapter adapter = adapter_in("d2");
  adapter.lora.erase("model.multi_modal_projector.linear_1");
  adapter.full = projector_tensors();
  adapter.config["target_modules"] = {"q_proj", "v_proj",   "down_proj",
                                      "fc1",    "linear_1", "linear_2"};
  adapter.config["modules_to_save"] = {"multi_modal_projector"};
  ::testing::internal::CaptureStderr();
  const AdapterDir dir = AdapterDir::open(adapter.write(temp_.file("saved-whole")));
  warn_of_missing_layers(dir, ModelDir::open(base_).config);
  EXPECT_EQ(::testing::internal::GetCapturedStderr().find("linear_"), std::string::npos);
}

TEST_F(Adapter, AdapterNameInKeysIsTolerated) {
  const std::string named = adapter_in("d2").write(temp_.file("named"), [](StoredTensors& tensors) {
    StoredTensors renamed;
    for (const auto& [name, tensor] : tensors)
      renamed[name.substr(0, name.size() - 6) + "default.weight"] = tensor;
    tensors = renamed;
  });
  Model a = load(named), b = load(adapter_in("d2").write(temp_.file("plain")));
  EXPECT_TRUE(logits_of(a).equal(logits_of(b)));
}

/// Adapters of transformers' model without its LM head, and of the decoder alone.
TEST_F(Adapter, AdaptersOfAPartOfTheModelAreRead) {
  for (const auto& [part, name] : std::vector<std::pair<std::string, std::string>>{
           {"model.", "headless"}, {"model.language_model.", "decoder"}}) {
    const auto renames = [&, head = "base_model.model." + part](StoredTensors& tensors, bool keep) {
      StoredTensors inside;
      for (const auto& [key, tensor] : tensors) {
        if (key.starts_with(head))
          inside[keep ? key : "base_model.model." + key.substr(head.size())] = tensor;
      }
      tensors = inside;
    };
    TinyAdapter adapter = adapter_in("d2");
    adapter.config["target_modules"] = {"q_proj", "v_proj", "down_proj", "linear_1", "fc1"};
    const std::string whole = adapter.write(temp_.file(name + "-whole"),
                                            [&](StoredTensors&t) { renames(t, true); }),
                      partial = adapter.write(temp_.file(name),
                                              [&](StoredTensors&t) { renames(t, false); });
    ::testing::internal::CaptureStderr();
    Model a = load(whole), b = load(partial);
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
    EXPECT_TRUE(logits_of(a).equal(logits_of(b))) << name;
    const auto told = [&](const std::string& path) {
      ::testing::internal::CaptureStderr();
      warn_of_missing_layers(AdapterDir::open(path), ModelDir::open(base_).config);
      const std::string text = ::testing::internal::GetCapturedStderr();
      const size_t begin = std::min(text.size(), text.find("names "));
      return text.substr(begin, text.find(" without") - begin);
    };
    // The layers of the tower are not missing from an adapter of the decoder alone.
    const bool headless = name == "headless";
    EXPECT_EQ(told(partial), headless ? "names 8 layers" : "names 3 layers");
    EXPECT_EQ(told(whole), headless ? "names 8 layers" : "names 10 layers");
  }
}

TEST_F(Adapter, ConvolutionsAndOtherEmbeddingsAreRefusedByName) {
  const std::string tower = "base_model.model.model.vision_tower.vision_model.embeddings.",
                    reason = "convolutions or embeddings of positions with LoRA:\n      model.";
  refuses(adapter_in("d2"), reason + "vision_tower.vision_model.embeddings.patch_embedding",
          [&](StoredTensors& t) {
            t[tower + "patch_embedding.lora_A.weight"] =
                random_tensor({2, 3, 4, 4}, DType::kF32, 1, 0, 1);
            t[tower + "patch_embedding.lora_B.weight"] =
                random_tensor({24, 2, 1, 1}, DType::kF32, 1, 0, 1);
          });
  refuses(adapter_in("d2"), reason + "vision_tower.vision_model.embeddings.position_embedding",
          [&](StoredTensors& t) {
            t[tower + "position_embedding.lora_embedding_A"] =
                random_tensor({2, 17}, DType::kF32, 1, 0, 1);
            t[tower + "position_embedding.lora_embedding_B"] =
                random_tensor({24, 2}, DType::kF32, 1, 0, 1);
          });
}

TEST_F(Adapter, BaseCopyMustBeTheBase) {
  TinyAdapter adapter;
  adapter.lora = {{"lm_head", {32, 64}}};
  const auto with_copy = [&](const StoredTensor& copy) {
    return [&copy](StoredTensors& tensors) {
      tensors["base_model.model.lm_head.base_layer.weight"] = copy;
    };
  };
  load(adapter.write(temp_.file("same"),
                     with_copy(tiny_llava_tensors({}).at("language_model.lm_head.weight"))));
  refuses(adapter, "another base weight", with_copy(random_tensor({64, 32}, DType::kF32, 5, 0, 1)));
}

TEST_F(Adapter, FoldersThatAreNone) {
  EXPECT_LFT_ERROR(ErrorKind::kInput, "not an adapter directory",
                   AdapterDir::open(temp_.file("nowhere")));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "not an adapter directory", AdapterDir::open(base_));
  temp_.write("named/first/adapter_config.json", "{}");
  EXPECT_LFT_ERROR(ErrorKind::kInput,
                   "name the folder of one adapter: " + temp_.file("named/first"),
                   AdapterDir::open(temp_.file("named")));
  temp_.write("a/adapter_config.json", adapter_in("d2").config.dump());
  EXPECT_LFT_ERROR(ErrorKind::kInput, "no weights", AdapterDir::open(temp_.file("a")));
  temp_.write("a/adapter_model.bin", "never opened");
  EXPECT_LFT_ERROR(ErrorKind::kInput, "convert to safetensors", AdapterDir::open(temp_.file("a")));
  // As written by the original LLaVA: the LoRA alone would load, without the projector it was
  // trained with.
  adapter_in("d2").write(temp_.file("b"));
  temp_.write("b/non_lora_trainables.bin", "never opened");
  EXPECT_LFT_ERROR(ErrorKind::kInput, "half of this adapter is a pickle",
                   AdapterDir::open(temp_.file("b")));
}

/// Of an adapter of another program, in whose folder is only the template; the other settings are
/// those of the base.
TEST_F(Adapter, TheTemplateOfAnotherProgramIsTheAdapters) {
  const std::string path = adapter_in("d2").write(temp_.file("other"));
  EXPECT_EQ(AdapterDir::open(path).notes.input.template_name, "");
  write_file_atomic(path + "/chat_template.jinja", "{{ messages }}");
  const AdapterDir dir = AdapterDir::open(path);
  EXPECT_EQ(dir.notes.chat_template, "{{ messages }}");
  EXPECT_EQ(dir.notes.input.template_name, absolute_path(path + "/chat_template.jinja"));
  write_file_atomic(base_ + "/lft_model.json",
                    notes_text({.base_path = base_, .input = {"llava-v1", "crop"}}));
  const AdapterNotes trained = training_notes(dir, ModelDir::open(base_));
  EXPECT_EQ(trained.chat_template, "{{ messages }}");
  EXPECT_EQ(trained.input.template_name, dir.notes.input.template_name);
  EXPECT_EQ(trained.input.image_fit, "crop");
  // A model's folder is no adapter.
  write_file_atomic(base_ + "/chat_template.jinja", "{{ messages }}");
  remove_tree(base_ + "/lft_model.json");
  EXPECT_EQ(read_model_notes(base_).chat_template, "");
}

TEST_F(Adapter, SaveThenLoadIsTheSame) {
  TinyAdapter adapter = adapter_in("d1");
  adapter.lora.erase("multi_modal_projector.linear_1");
  adapter.config["use_rslora"] = true;
  Model model = load(adapter.write(temp_.file("a")));
  make_trainable(*model, {"projector"});
  {
    const at::NoGradGuard no_grad;
    as_llava(model).multi_modal_projector->linear_2->bias.add_(0.5);
  }
  const AdapterNotes notes{base_, base_fingerprint(ModelDir::open(base_)), {"llava-v1", "crop"}};
  save_adapter(temp_.file("saved"), model, AdapterDir::open(temp_.file("a")).lora, {"projector"},
               notes);

  const AdapterDir saved = AdapterDir::open(temp_.file("saved"));
  EXPECT_EQ(saved.base_model_name_or_path, base_);
  EXPECT_EQ(saved.notes.base_path, base_);
  EXPECT_EQ(saved.notes.base_fingerprint, notes.base_fingerprint);
  EXPECT_EQ(saved.notes.input.template_name, "llava-v1");
  EXPECT_EQ(saved.notes.input.image_fit, "crop");
  EXPECT_EQ(saved.lora.variant, "rslora");
  EXPECT_EQ(saved.full_tensors.size(), 4u);
  check_adapter_base(saved, ModelDir::open(base_));
  Model again = load(temp_.file("saved"));
  EXPECT_TRUE(logits_of(model).equal(logits_of(again)));

  const std::string other = write_tiny_llava(temp_.file("other"), {.seed = 2});
  EXPECT_LFT_ERROR(ErrorKind::kInput, "another base model",
                   check_adapter_base(saved, ModelDir::open(other)));
}

TEST_F(Adapter, DoraHasAMagnitudeARow) {
  const std::string q = "base_model.model.model.language_model.layers.0.self_attn.q_proj",
                    magnitude = q + ".lora_magnitude_vector";
  TinyAdapter adapter;
  adapter.lora = {{"model.language_model.layers.0.self_attn.q_proj", {32, 32}}};
  adapter.config["use_dora"] = true;
  refuses(adapter, "self_attn.q_proj: use_dora without lora_magnitude_vector");
  const auto with = [&](const std::string& name, int64_t rows) {
    return [=](StoredTensors& t) { t[name] = random_tensor({rows}, DType::kF32, 1, 1, 0.3); };
  };
  refuses(adapter, "found [31], expected [32]", with(magnitude, 31));
  refuses(adapter, "self_attn.k_proj: lora_magnitude_vector without lora_A", [&](StoredTensors& t) {
    with(magnitude, 32)(t);
    with("base_model.model.model.language_model.layers.0.self_attn.k_proj.lora_magnitude_vector",
         16)(t);
  });
  adapter.config["use_rslora"] = true;
  refuses(adapter, "at most one of them", with(magnitude, 32));
  adapter.config.erase("use_rslora");

  // As saved by PEFT, as in its state_dict, and as saved again by lft.
  Model model = load(adapter.write(temp_.file("a"), with(magnitude, 32)));
  Model plain = load_tiny(base_);
  EXPECT_FALSE(logits_of(model).equal(logits_of(plain)));
  Model raw = load(adapter.write(temp_.file("b"), with(magnitude + ".default.weight", 32)));
  EXPECT_TRUE(logits_of(model).equal(logits_of(raw)));
  const AdapterDir dir = AdapterDir::open(temp_.file("a"));
  EXPECT_EQ(dir.lora.variant, "dora");
  save_adapter(temp_.file("saved"), model, dir.lora, {}, {"base", "f", "plain", "pad"});
  Model again = load(temp_.file("saved"));
  EXPECT_TRUE(logits_of(model).equal(logits_of(again)));
  EXPECT_EQ(
      SafetensorsFile(temp_.file("saved") + "/adapter_model.safetensors").info(magnitude).shape,
      std::vector<int64_t>{32});
}

TEST_F(Adapter, PissaIsSavedAsPlainLoraForTheOriginalBase) {
  Model model = load_tiny(base_);
  const LoraOptions options{.variant = "pissa", .rank = 2, .alpha = 3, .dropout = 0.05};
  inject_lora(select_sites(linear_sites(*model), {"llm:all-linear", "projector:all-linear"}),
              options, 1);
  {
    const at::NoGradGuard no_grad;
    for (auto& parameter : model->named_parameters()) {
      if (parameter.key().ends_with("lora_B")) parameter.value().mul_(1.5);
    }
  }
  save_adapter(temp_.file("saved"), model, options, {}, {"base", "f", "plain", "pad"});
  const AdapterDir dir = AdapterDir::open(temp_.file("saved"));
  EXPECT_EQ(dir.lora.variant, "lora");
  EXPECT_EQ(dir.lora.rank, 4);
  EXPECT_EQ(dir.lora.alpha, 6);
  EXPECT_EQ(dir.lora.dropout, 0.05);
  const Json config = read_json_file(temp_.file("saved") + "/adapter_config.json");
  EXPECT_EQ(config["init_lora_weights"], true);
  EXPECT_EQ(config.size(), 17u);
  Model again = load(temp_.file("saved")), plain = load_tiny(base_);
  const at::Tensor want = logits_of(model), got = logits_of(again);
  EXPECT_GT((want - logits_of(plain)).abs().max().item<float>(), 0.01f);
  EXPECT_LT((want - got).abs().max().item<float>(), 1e-4f);
}

TEST_F(Adapter, SavedFilesAreThePortableOnes) {
  Model model = load(adapter_in("d3").write(temp_.file("a")));
  save_adapter(temp_.file("saved"), model,
               {.variant = "lora", .rank = 2, .alpha = 3, .dropout = 0.05}, {},
               {"base", "f", "plain", "pad"});
  const SafetensorsFile file(temp_.file("saved") + "/adapter_model.safetensors");
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "pt"}}));
  EXPECT_EQ(file.tensors().size(), 10u);
  EXPECT_EQ(file.tensors().count("base_model.model.model.vision_tower.vision_model.encoder.layers."
                                 "0.mlp.fc1.lora_A.weight"),
            1u);
  EXPECT_EQ(file.tensors().count(
                "base_model.model.model.language_model.layers.0.self_attn.q_proj.lora_B.weight"),
            1u);
  for (const auto& [name, info] : file.tensors()) EXPECT_EQ(info.dtype, DType::kF32) << name;
  const Json config = read_json_file(temp_.file("saved") + "/adapter_config.json");
  EXPECT_EQ(config.size(), 17u);
  EXPECT_EQ(config["lora_alpha"].dump(), "3");
  EXPECT_EQ(config["modules_to_save"], nullptr);
  EXPECT_EQ(config["inference_mode"], true);
}

TEST_F(Adapter, SaveRefusesWhatPeftCannotOpen) {
  Model plain = load_tiny(base_);
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "without LoRA",
                   save_adapter(temp_.file("x"), plain, {}, {"projector"}, {}));
  Model model = load(adapter_in("d2").write(temp_.file("a")));
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "full: [all]",
                   save_adapter(temp_.file("x"), model, {}, {"all"}, {}));
  EXPECT_FALSE(path_exists(temp_.file("x")));
}

TEST(TargetNames, NamesEveryModuleInEverySpelling) {
  const Model model = load_tiny(write_tiny_llava(TempDir().file("base")));
  EXPECT_EQ(target_names(
                *model->config.family,
                {"vision_tower.vision_model.encoder.layers.1.mlp.fc1", "language_model.lm_head",
                 "multi_modal_projector.linear_1", "language_model.model.layers.10.mlp.up_proj"}),
            (std::vector<std::string>{"lm_head", "model.language_model.layers.10.mlp.up_proj",
                                      "model.multi_modal_projector.linear_1",
                                      "model.vision_tower.encoder.layers.1.mlp.fc1",
                                      "model.vision_tower.vision_model.encoder.layers.1.mlp.fc1"}));
}

}  // namespace
}  // namespace lft::adapter_test
