// Adapters of experts: read, saved, merged and exported.
#include <ATen/ATen.h>

#include "hf/expert_logits.h"
#include "models/lora/inject_select.h"
#include "src/hf/adapter/adapter_load.h"
#include "src/hf/adapter/adapter_merge.h"
#include "src/hf/adapter/adapter_model.h"
#include "src/hf/adapter/adapter_parts.h"
#include "src/hf/adapter/adapter_save.h"
#include "src/hf/exports/exports.h"
#include "src/io/json.h"

namespace lft::expert_adapters_test {
using namespace lft::test;
namespace {

const std::string kLayer = "model.language_model.layers.2.mlp.experts",
                  kModule = "language_model.model.layers.2.mlp.experts.";
constexpr int64_t kExperts = 8, kHidden = 32, kInner = 48;

/// An adapter in PEFT's form on the experts of the third layer, A and B as PEFT stores them.
struct ExpertAdapter {
  bool gate_up = true, down = true;
  int64_t rank = 2, down_rank = 2;
  nlohmann::json config = nlohmann::json::object();

  StoredTensors tensors() const {
    StoredTensors all;
    const auto add = [&](const std::string& key, int64_t in, int64_t out, int64_t r) {
      const std::string prefix = "base_model.model." + kLayer + key;
      all[prefix + ".lora_A.weight"] = random_tensor({kExperts * r, in}, DType::kF32, 3, 0, 0.3);
      all[prefix + ".lora_B.weight"] = random_tensor({out, r * kExperts}, DType::kF32, 4, 0, 0.3);
    };
    if (gate_up) add(down ? ".base_layer" : "", kHidden, 2 * kInner, rank);
    if (down) add("", kInner, kHidden, down_rank);
    return all;
  }
  std::string write(const std::string& dir,
                    const std::function<void(StoredTensors&)>& change = nullptr) const {
    nlohmann::json json = {{"peft_type", "LORA"}, {"task_type", "CAUSAL_LM"},
                           {"r", rank},           {"lora_alpha", 3},
                           {"lora_dropout", 0.0}, {"target_modules", nullptr}};
    json["target_parameters"] = nlohmann::json::array();
    for (const auto& [is, name] : {std::pair{gate_up, "gate_up_proj"}, {down, "down_proj"}})
      if (is) json["target_parameters"].push_back(kLayer + "." + name);
    json.update(config);
    StoredTensors stored = tensors();
    if (change) change(stored);
    make_dirs(dir);
    write_safetensors(dir + "/adapter_model.safetensors", stored);
    write_file_atomic(dir + "/adapter_config.json", json.dump(2));
    return dir;
  }
};

class ExpertAdapters : public ::testing::TestWithParam<bool> {
 protected:
  ExpertAdapters()
      : base_(write_experts(temp_.file("base"), config_,
                            expert_tensors_of(config_, DType::kF32, GetParam()))) {}

  at::Tensor logits(const std::string& base, const std::string& adapter) const {
    Model model = load_tiny(base);
    if (!adapter.empty()) load_adapter(model, AdapterDir::open(adapter));
    return text_logits(model);
  }
  /// The weights of experts in a folder, by stored name.
  static std::map<std::string, at::Tensor> weights(const std::string& dir) {
    std::map<std::string, at::Tensor> all;
    const SafetensorsFile file(dir + "/model.safetensors");
    for (const auto& [name, info] : file.tensors()) {
      if (name.find(".mlp.experts.") == std::string::npos) continue;
      at::Tensor tensor = at::empty(info.shape);
      file.read(info, tensor.data_ptr());
      all[name] = tensor;
    }
    return all;
  }
  /// PEFT's change of the weights, [expert, out, in]: A is expert major, B has the experts in its
  /// fastest index.
  static at::Tensor delta(const StoredTensors& tensors, const std::string& key, double scale) {
    const auto read = [&](const std::string& name) {
      const StoredTensor& stored = tensors.at("base_model.model." + kLayer + key + name);
      return at::from_blob(const_cast<char*>(stored.bytes.data()), stored.shape).clone();
    };
    const at::Tensor a = read(".lora_A.weight"), b = read(".lora_B.weight");
    std::vector<at::Tensor> all;
    for (int64_t e = 0; e < kExperts; ++e)
      all.push_back(b.slice(1, e, std::nullopt, kExperts).mm(a.chunk(kExperts)[e]) * scale);
    return at::stack(all);
  }

  const nlohmann::json config_ = expert_config("qwen3_vl_moe");
  TempDir temp_;
  const std::string base_;
  int number_ = 0;
};

TEST_P(ExpertAdapters, AreMergedAsPeftAddsThem) {
  const ExpertAdapter adapter{.down_rank = 3,
                              .config = {{"rank_pattern", {{"mlp.experts.down_proj", 3}}},
                                         {"alpha_pattern", {{"experts.gate_up_proj", 5}}}}};
  const std::string from = adapter.write(temp_.file("adapter"));
  const AdapterDir dir = AdapterDir::open(from);
  EXPECT_EQ(dir.lora.of(kModule + "down_proj").rank, 3);
  EXPECT_EQ(dir.lora.of(kModule + "gate_up_proj").rank, 2);
  const MergeReport report = merge_to_dir(base_, from, temp_.file("merged"));
  EXPECT_EQ(report.tensors_merged, 2);
  auto before = weights(base_), after = weights(temp_.file("merged"));
  ASSERT_EQ(before.size(), 4u);
  const std::map<std::string, at::Tensor> deltas = {
      {kLayer + ".gate_up_proj", delta(adapter.tensors(), ".base_layer", 5.0 / 2)},
      {kLayer + ".down_proj", delta(adapter.tensors(), "", 3.0 / 3)}};
  for (const auto& [name, weight] : before) {
    ASSERT_EQ(after.at(name).sizes(), weight.sizes()) << name;  // the layout remains
    const auto change = deltas.find(name);
    if (change == deltas.end()) {
      EXPECT_TRUE(after.at(name).equal(weight)) << name;
      continue;
    }
    const at::Tensor added = GetParam() ? change->second.transpose(1, 2) : change->second,
                     want = weight + added;
    // One rounding of each product and sum of three terms.
    EXPECT_LT((after.at(name) - want).abs().max().item<double>(),
              8 * 0x1p-24 * want.abs().max().item<double>())
        << name;
  }
  const at::Tensor want = logits(base_, from), got = logits(temp_.file("merged"), "");
  EXPECT_GT((want - logits(base_, "")).abs().max().item<float>(), 0.05f);
  EXPECT_LT((got - want).abs().max().item<float>(), 2e-5f * want.abs().max().item<float>());
}

TEST_P(ExpertAdapters, AreReadAsTheyWereSaved) {
  const at::NoGradGuard no_grad;
  using Targets = std::vector<std::string>;
  for (const Targets& targets :
       {Targets{"llm:experts.gate_up_proj"}, Targets{"llm:experts.down_proj"},
        Targets{"llm:q_proj", "llm:experts.down_proj"},
        Targets{"llm:experts.gate_up_proj", "llm:experts.down_proj"},
        Targets{"llm:layers.2.mlp.experts.gate_up_proj", "llm:layers.0.mlp.experts.down_proj",
                "llm:gate_proj"}}) {
    SCOPED_TRACE(::testing::PrintToString(targets));
    LoraOptions lora{.rank = 3, .alpha = 6};
    lora.own[kModule + "gate_up_proj"] = {.rank = 5, .alpha = 2};
    Model model = load_tiny(base_);
    std::erase_if(lora.own, [&](const auto& own) {
      return std::ranges::none_of(select_sites(linear_sites(*model), targets),
                                  [&](const auto& site) { return site.name == own.first; });
    });
    inject_lora(select_sites(linear_sites(*model), targets), lora, 1);
    at::manual_seed(5);
    for (const auto& item : model->named_parameters())
      if (item.key().ends_with(".lora_B")) item.value().copy_(at::randn(item.value().sizes()));
    const std::string folder = temp_.file("saved" + std::to_string(++number_));
    save_adapter(folder, model, lora, {}, {base_, "", "", ""});
    Model read = load_tiny(base_);
    load_adapter(read, AdapterDir::open(folder));
    EXPECT_TRUE(text_logits(read).equal(text_logits(model)));
    for (const auto& item : model->named_parameters())
      EXPECT_TRUE(read->named_parameters()[item.key()].equal(item.value())) << item.key();
    Model coded = load_model(ModelDir::open(base_), at::kFloat, at::kCPU, true,
                             {.storage = ops::BaseStorage::kNf4});
    load_adapter(coded, AdapterDir::open(folder));
    EXPECT_TRUE(text_logits(coded).isfinite().all().item<bool>());
  }
}

/// A fully trained decoder takes the place of the base's, in the base's layout.
TEST_P(ExpertAdapters, WholeExpertsHaveTheLayoutOfTheBase) {
  const at::NoGradGuard no_grad;
  Model model = load_tiny(base_);
  for (const auto& item : model->named_parameters())
    if (scope_of(item.key()) == "llm") item.value().mul_(1.25);
  save_parts(temp_.file("parts"), model, {"llm"}, {base_, "", "", ""});
  merge_to_dir(base_, temp_.file("parts"), temp_.file("merged"));
  auto before = weights(base_), after = weights(temp_.file("merged"));
  for (const auto& [name, weight] : before)
    EXPECT_TRUE(after.at(name).equal(weight * 1.25)) << name;
  EXPECT_TRUE(logits(temp_.file("merged"), "").equal(text_logits(model)));
  save_model(temp_.file("whole"), model, ModelDir::open(base_));
  EXPECT_TRUE(logits(temp_.file("whole"), "").equal(text_logits(model)));
}

TEST_P(ExpertAdapters, OtherShapesAreRefusedByName) {
  const auto refuses = [&](const ExpertAdapter& adapter, const std::string& piece,
                           const std::function<void(StoredTensors&)>& change) {
    const std::string dir = adapter.write(temp_.file("bad" + std::to_string(++number_)), change);
    EXPECT_LFT_ERROR(ErrorKind::kInput, piece, {
      Model model = load_tiny(base_);
      load_adapter(model, AdapterDir::open(dir));
    });
  };
  const std::string key = "base_model.model." + kLayer;
  const auto reshaped = [&](const std::string& name, const std::vector<int64_t>& shape) {
    return [=](StoredTensors& tensors) {
      ASSERT_TRUE(tensors.contains(key + name));
      tensors[key + name] = random_tensor(shape, DType::kF32, 1, 0, 1);
    };
  };
  refuses({}, "lora_A.weight: found [14, 48], expected [16, 48]",
          reshaped(".lora_A.weight", {14, kInner}));
  refuses({}, "lora_B.weight: found [32, 18], expected [32, 16]",
          reshaped(".lora_B.weight", {kHidden, 18}));
  refuses({}, "lora_A.weight: found [15, 32]",
          reshaped(".base_layer.lora_A.weight", {15, kHidden}));
  refuses({}, "lora_B.weight: found [48, 16], expected [96, 16]",
          reshaped(".base_layer.lora_B.weight", {kInner, 16}));
  // The name of the other projection than that of the tensors.
  refuses({.gate_up = false, .config = {{"target_parameters", {"mlp.experts.gate_up_proj"}}}},
          "expected [16, 32]", nullptr);
  refuses({}, "gate_up_proj: lora_A without lora_B",
          [&](StoredTensors& tensors) { tensors.erase(key + ".base_layer.lora_B.weight"); });
}

TEST_P(ExpertAdapters, ExportsMergeThemOrAreRefused) {
  ExpertAdapter adapter;
  adapter.config["target_modules"] = {"v_proj"};
  const std::string v = "base_model.model.model.language_model.layers.0.self_attn.v_proj.",
                    from = adapter.write(temp_.file("adapter"), [&](StoredTensors&tensors) {
                      tensors[v + "lora_A.weight"] = random_tensor({2, 32}, DType::kF32, 8, 0, 0.3);
                      tensors[v + "lora_B.weight"] = random_tensor({32, 2}, DType::kF32, 9, 0, 0.3);
                    });
  const auto write = [&](Target target, const std::string& out) {
    return export_adapter({.target = target,
                           .adapter = AdapterDir::open(from),
                           .model = base_,
                           .out = temp_.file(out)});
  };
  const at::Tensor want = logits(base_, from);
  write(Target::kPeft, "peft");
  EXPECT_TRUE(logits(base_, temp_.file("peft")).equal(want));

  const std::vector<std::string> lines = write(Target::kVllm, "vllm");
  EXPECT_NE(lines.at(0).find("LoRA of 2 modules, of them 2 of experts, whose LoRA vLLM 0.33 does "
                             "not read"),
            std::string::npos)
      << lines.at(0);
  const AdapterDir served = AdapterDir::open(temp_.file("vllm") + "/adapter");
  EXPECT_EQ(served.lora_modules,
            (std::vector<std::string>{"language_model.model.layers.0.self_attn.v_proj"}));
  const at::Tensor got = logits(temp_.file("vllm") + "/base", served.path);
  EXPECT_LT((got - want).abs().max().item<float>(), 2e-5f * want.abs().max().item<float>());
  const std::vector<Finding> list =
      findings(Target::kVllm, AdapterDir::open(from), ModelDir::open(base_).config);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].what + " " + list[0].does, "LoRA on experts is ignored");
  EXPECT_EQ(findings(Target::kVllm, served, ModelDir::open(base_).config).size(), 0u);

  EXPECT_LFT_ERROR(ErrorKind::kInput, "SGLang 0.5.23 loads no Qwen3-VL-MoE",
                   write(Target::kSglang, "sglang"));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "lft writes no GGUF of Qwen3-VL-MoE",
                   write(Target::kGguf, "gguf"));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "LoRA on experts is refused", write(Target::kGguf, "gguf"));
}

INSTANTIATE_TEST_SUITE_P(Layout, ExpertAdapters, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "transposed" : "plain"; });

}  // namespace
}  // namespace lft::expert_adapters_test
