// Exports: the same updates under other names, baked or merged; and what each client rejects.
#include <gtest/gtest.h>

#include <filesystem>

#include "hf/support.h"
#include "src/hf/adapter/adapter_files.h"
#include "src/hf/adapter/adapter_load.h"
#include "src/hf/exports/deltas.h"
#include "src/hf/exports/exports.h"
#include "src/io/json.h"

namespace lft::exports_test {
using namespace lft::test;
namespace {

class Exports : public ::testing::Test {
 protected:
  Exports() : base_(write_tiny_llava(temp_.file("base"))) {}

  /// LoRA in every tower; with another rank and alpha if given in `config`.
  std::string adapter(const nlohmann::json& config = nlohmann::json::object(), bool whole = false) {
    TinyAdapter tiny = adapter_in("d2");
    if (whole) {
      tiny.lora.erase("model.multi_modal_projector.linear_1");
      tiny.full = projector_tensors();
      tiny.config["modules_to_save"] = {"multi_modal_projector"};
    }
    tiny.config["target_modules"] = {"q_proj", "v_proj", "down_proj", "fc1"};
    if (!whole) tiny.config["target_modules"].push_back("linear_1");
    tiny.config.update(config);
    return tiny.write(temp_.file("adapter-" + std::to_string(++number_)));
  }
  std::vector<std::string> write(const std::string& from, Target target, const std::string& out,
                                 Dialect dialect = Dialect::kEvery) {
    return export_adapter({.target = target,
                           .adapter = AdapterDir::open(from),
                           .model = base_,
                           .out = temp_.file(out),
                           .dialect = dialect});
  }
  at::Tensor logits(const std::string& base, const std::string& adapter) {
    Model model = load_tiny(base);
    if (!adapter.empty()) load_adapter(model, AdapterDir::open(adapter));
    return logits_of(model);
  }
  std::vector<std::string> found(Target target, const std::string& adapter) {
    std::vector<std::string> list;
    for (const Finding& each :
         findings(target, AdapterDir::open(adapter), ModelDir::open(base_).config))
      list.push_back(each.what + (each.does == "is refused" ? " -" : "") +
                     (each.blocks ? " !" : ""));
    return list;
  }
  using List = std::vector<std::string>;

  TempDir temp_;
  std::string base_;
  int number_ = 0;
};

TEST_F(Exports, EachDialectHasItsNamesAndTheSameUpdates) {
  const std::string from = adapter({{"alpha_pattern", {{"mlp.fc1", 5}}}}, /*whole=*/true);
  const at::Tensor want = logits(base_, from);
  const std::map<Dialect, List> names = {
      {Dialect::kD1,
       {"base_model.model.language_model.model.layers.0.self_attn.q_proj.lora_A.weight",
        "base_model.model.vision_tower.vision_model.encoder.layers.0.mlp.fc1.lora_B.weight",
        "base_model.model.multi_modal_projector.linear_1.bias"}},
      {Dialect::kD2,
       {"base_model.model.model.language_model.layers.0.self_attn.q_proj.lora_A.weight",
        "base_model.model.model.vision_tower.vision_model.encoder.layers.0.mlp.fc1.lora_B.weight",
        "base_model.model.model.multi_modal_projector.linear_1.bias"}},
      {Dialect::kD3,
       {"base_model.model.model.language_model.layers.0.self_attn.q_proj.lora_A.weight",
        "base_model.model.model.vision_tower.encoder.layers.0.mlp.fc1.lora_B.weight",
        "base_model.model.model.multi_modal_projector.linear_1.bias"}}};
  for (const auto& [dialect, keys] : names) {
    const std::string out = "out-" + std::to_string(++number_);
    write(from, Target::kPeft, out, dialect);
    const SafetensorsFile file(temp_.file(out) + "/adapter_model.safetensors");
    for (const std::string& key : keys) EXPECT_TRUE(file.tensors().contains(key)) << key;
    EXPECT_TRUE(want.equal(logits(base_, temp_.file(out))));
  }
  write(from, Target::kPeft, "every");
  const Json config = read_json_file(temp_.file("every") + "/adapter_config.json");
  EXPECT_EQ(config["alpha_pattern"],
            (Json{{"(?:model.vision_tower.encoder.layers.0.mlp.fc1|model.vision_tower."
                   "vision_model.encoder.layers.0.mlp.fc1)",
                   5}}));
  EXPECT_EQ(config["modules_to_save"], Json({"multi_modal_projector"}));
  EXPECT_TRUE(want.equal(logits(base_, temp_.file("every"))));
}

/// The server's base and adapter together equal the original base and adapter.
TEST_F(Exports, WhatTheServerDoesNotReadIsMergedIntoTheBase) {
  const std::string from = adapter(
      {{"use_rslora", true}, {"alpha_pattern", {{"v_proj", 7}}}, {"rank_pattern", Json::object()}},
      /*whole=*/true);
  const at::Tensor want = logits(base_, from);
  write(from, Target::kVllm, "vllm");
  const AdapterDir served = AdapterDir::open(temp_.file("vllm") + "/adapter");
  EXPECT_TRUE(served.full_tensors.empty());
  EXPECT_EQ(served.lora.own.size(), 1u);  // vLLM reads patterns, and uses the other scale
  EXPECT_EQ(served.notes.base_path, absolute_path(temp_.file("vllm")) + "/base");
  const at::Tensor got = logits(temp_.file("vllm") + "/base", served.path);
  EXPECT_LT((got - want).abs().max().item<float>(), 2e-5f * want.abs().max().item<float>());
  // An adapter for the base exported with it does not fit the first base.
  EXPECT_LFT_ERROR(ErrorKind::kInput, "another base model",
                   check_adapter_base(served, ModelDir::open(base_)));

  // Nothing to merge: no second base.
  write(adapter({{"use_rslora", true}}), Target::kVllm, "alone");
  EXPECT_FALSE(path_exists(temp_.file("alone") + "/base"));
  EXPECT_EQ(AdapterDir::open(temp_.file("alone") + "/adapter").lora.variant, "rslora");
}

TEST_F(Exports, FindingsNameWhatAClientDoesNotTake) {
  const std::string tower = "LoRA on vision tower or projector";
  EXPECT_EQ(found(Target::kPeft, adapter(Json::object(), true)), List{});
  EXPECT_EQ(found(Target::kVllm, adapter()), List{tower});
  EXPECT_EQ(found(Target::kVllm, adapter(Json::object(), true)),
            (List{"modules_to_save: multi_modal_projector -", tower}));
  EXPECT_EQ(found(Target::kVllm, adapter({{"alpha_pattern", {{"v_proj", 7}}}})), List{tower});
  EXPECT_EQ(found(Target::kVllm, adapter({{"use_rslora", true}})), List{tower});
  const List sglang =
      found(Target::kSglang, adapter({{"use_rslora", true}, {"target_modules", ".*"}}));
  EXPECT_EQ(sglang,
            (List{"LLaVA !", "use_rslora", tower + " -", "target_modules: an expression -",
                  "LoRA without its neighbours language_model.model.layers.0.self_attn.v_proj, "
                  "language_model.model.layers.1.self_attn.q_proj -"}));
  TinyAdapter newest = adapter_in("d3");
  EXPECT_EQ(found(Target::kVllm, newest.write(temp_.file("d3"))),
            (List{tower, "the vision tower's spelling of transformers 5.6"}));
  TinyAdapter head;
  head.lora = {{"lm_head", {32, 64}}};
  EXPECT_EQ(found(Target::kVllm, head.write(temp_.file("head"))), List{});
  EXPECT_EQ(found(Target::kGguf, temp_.file("head")), (List{"LLaVA !", "LoRA on the LM head"}));
  TinyAdapter large;
  large.rank = 17;
  large.config["r"] = 17;
  large.lora = {{"model.language_model.layers.0.self_attn.q_proj", {32, 32}}};
  EXPECT_EQ(found(Target::kVllm, large.write(temp_.file("large"))), List{"rank 17 -"});
}

TEST_F(Exports, WhatNoExportCanRewriteIsRefused) {
  const auto refuses = [&](const std::string& from, Target target, const std::string& piece) {
    EXPECT_LFT_ERROR(ErrorKind::kInput, piece, write(from, target, "refused"));
    EXPECT_FALSE(path_exists(temp_.file("refused")));
  };
  refuses(adapter(), Target::kSglang, "SGLang 0.5.23 loads no LLaVA in Hugging Face layout");
  refuses(adapter(), Target::kSglang, "serve it with vLLM (lft export ");
  refuses(adapter(), Target::kGguf, "read the class position last");
  TinyAdapter bias;
  bias.config["lora_bias"] = true;
  const std::string module = "model.language_model.layers.0.self_attn.q_proj";
  bias.lora = {{module, {32, 32}}};
  const std::string with_bias = bias.write(temp_.file("bias"), [&](StoredTensors& tensors) {
    tensors["base_model.model." + module + ".lora_B.bias"] =
        random_tensor({32}, DType::kF32, 5, 0, 1);
  });
  refuses(with_bias, Target::kVllm, "lora_bias is refused");
  write(with_bias, Target::kPeft, "peft");
  EXPECT_TRUE(logits(base_, with_bias).equal(logits(base_, temp_.file("peft"))));
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "would touch an input",
                   export_adapter({.target = Target::kPeft,
                                   .adapter = AdapterDir::open(with_bias),
                                   .model = base_,
                                   .out = base_ + "/inside"}));
  temp_.write("full/file", "x");
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "the output exists", write(with_bias, Target::kPeft, "full"));
}

TEST(Deltas, ADifferenceIsFound) {
  const auto updates = [](double factor) {
    return Updates{
        .lora = {.variant = "lora", .rank = 2, .alpha = 2},
        .tensors = {{"m", {{"lora_A", at::ones({2, 3})}, {"lora_B", at::full({4, 2}, factor)}}}}};
  };
  EXPECT_EQ(compare_updates(updates(1), updates(1), "x"), 0);
  EXPECT_LFT_ERROR(ErrorKind::kInternal, "reads back otherwise",
                   compare_updates(updates(1), updates(1.001), "x"));
  Updates less = updates(1);
  less.tensors.clear();
  EXPECT_LFT_ERROR(ErrorKind::kInternal, "0 of 1", compare_updates(updates(1), less, "x"));
  Updates mixed = updates(1);
  mixed.lora.own["m"] = {.rank = 2, .alpha = 6};
  const Updates plain = baked(mixed);
  EXPECT_TRUE(plain.lora.own.empty());
  EXPECT_LT(compare_updates(mixed, plain, "x"), 1e-6);
}

}  // namespace
}  // namespace lft::exports_test
