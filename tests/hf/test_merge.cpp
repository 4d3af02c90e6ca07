#include <gtest/gtest.h>

#include <filesystem>

#include "hf/support.h"
#include "src/hf/adapter/adapter_load.h"
#include "src/hf/adapter/adapter_merge.h"
#include "src/hf/adapter/adapter_model.h"
#include "src/hf/adapter/adapter_notes.h"
#include "src/hf/adapter/adapter_parts.h"
#include "src/hf/adapter/adapter_save.h"
#include "src/hf/model_dir.h"
#include "src/hf/model_dir_fingerprint.h"
#include "src/hf/weights.h"
#include "src/hf/weights_load.h"
#include "src/io/json.h"

namespace lft::merge_test {
using namespace lft::test;
namespace {

class Merge : public ::testing::Test {
 protected:
  Merge() : adapter_(adapter_in("d2")) {
    adapter_.lora.erase("model.multi_modal_projector.linear_1");
    adapter_.full = projector_tensors();
    adapter_.config["modules_to_save"] = {"multi_modal_projector"};
  }
  std::string base(const TinyLlava& tiny = {}) {
    return write_tiny_llava(temp_.file("base"), tiny);
  }
  std::string adapter() { return adapter_.write(temp_.file("adapter")); }
  void refuses(ErrorKind kind, const std::string& piece, const std::string& model,
               const std::string& adapter, const std::string& out) {
    EXPECT_LFT_ERROR(kind, piece, merge_to_dir(model, adapter, out));
  }
  TempDir temp_;
  TinyAdapter adapter_;
};

std::string bytes_of(const SafetensorsFile& file, const std::string& name) {
  std::string bytes(file.info(name).bytes, '\0');
  file.read(file.info(name), bytes.data());
  return bytes;
}

TEST_F(Merge, MergedIsBasePlusAdapter) {
  const std::string base = this->base(), out = temp_.file("out");
  const MergeReport report = merge_to_dir(base, adapter(), out);
  EXPECT_EQ(report.tensors_merged, 8);  // four LoRA sites, four projector tensors
  EXPECT_EQ(report.shards, 1);
  Model with_adapter = load_tiny(base), merged = load_tiny(out);
  load_adapter(with_adapter, AdapterDir::open(temp_.file("adapter")));
  const at::Tensor want = logits_of(with_adapter),
                   plain = logits_of(*std::make_unique<Model>(load_tiny(base)));
  EXPECT_GT((want - plain).abs().max().item<float>(), 0.05f);
  // (W + s B A) x against W x + s B (A x): roundings of sums of at most 50 terms, a few layers
  // deep.
  EXPECT_LT((want - logits_of(merged)).abs().max().item<float>(),
            2e-5f * want.abs().max().item<float>());
}

TEST_F(Merge, InFloat32NothingIsRoundedToTheBasesType) {
  const std::string base = this->base({.dtype = DType::kF16}), out = temp_.file("out");
  const MergeReport report = merge_to_dir(base, adapter(), out, nullptr, {.in_float32 = true});
  const SafetensorsFile file(out + "/model.safetensors");
  int64_t wide = 0;
  for (const auto& [name, info] : file.tensors()) wide += info.dtype == DType::kF32;
  EXPECT_EQ(wide, report.tensors_merged);
  Model with_adapter = load_tiny(base);
  load_adapter(with_adapter, AdapterDir::open(temp_.file("adapter")));
  const at::Tensor want = logits_of(with_adapter);
  Model merged = load_tiny(out);
  EXPECT_LT((want - logits_of(merged)).abs().max().item<float>(),
            2e-5f * want.abs().max().item<float>());  // as in MergedIsBasePlusAdapter
}

/// Fully trained parts without LoRA: loaded with the base and merged into it they equal the model.
TEST_F(Merge, PartsAreReadAndMergedLikeAnAdapter) {
  const std::string base = this->base({.dtype = DType::kF16}), parts = temp_.file("parts");
  Model model = load_tiny(base);  // float32
  {
    const at::NoGradGuard no_grad;
    for (const auto& [name, tensor] : model_parameters(*model)) {
      if (scope_of(name) != "llm") at::Tensor(tensor).mul_(1.25);  // exact in F16
    }
  }
  save_parts(parts, model, {"projector", "vision"}, {"base", "", "plain", "pad"});
  const AdapterDir dir = AdapterDir::open(parts);
  EXPECT_TRUE(dir.parts);
  EXPECT_TRUE(dir.lora_modules.empty());
  EXPECT_EQ(dir.notes.input.template_name, "plain");
  Model loaded = load_tiny(base);
  load_adapter(loaded, dir);
  EXPECT_TRUE(logits_of(loaded).equal(logits_of(model)));
  merge_to_dir(base, parts, temp_.file("out"));
  const ModelDir out = ModelDir::open(temp_.file("out"));
  Model merged = load_tiny(temp_.file("out"));
  const auto want = model_parameters(*model);
  for (const auto& [name, tensor] : model_parameters(*merged))
    EXPECT_TRUE(tensor.equal(want.at(name).to(at::kHalf).to(at::kFloat))) << name;
  EXPECT_EQ(out.info(out.tensors.begin()->second).dtype, DType::kF16);
}

TEST_F(Merge, PartsThatAreNotWholeOrOfAnotherModelAreRefused) {
  const std::string base = this->base(), parts = temp_.file("parts");
  std::filesystem::create_directories(parts);
  const std::string file = parts + "/parts.safetensors";
  const auto put = [&](const StoredTensors& tensors) { write_safetensors(file, tensors); };
  const auto bias = [](int64_t size) { return random_tensor({size}, DType::kF32, 1, 0, 1); };
  put({{"model.multi_modal_projector.linear_1.bias", bias(32)}});
  refuses(ErrorKind::kInput, "missing of modules_to_save", base, parts, temp_.file("out"));
  put({{"model.multi_modal_projector.linear_9.bias", bias(32)}});
  refuses(ErrorKind::kInput, "does not fit", base, parts, temp_.file("out"));
  put({{"transformer.wte.weight", bias(32)}});
  refuses(ErrorKind::kInput, "no tensor of one", base, parts, temp_.file("out"));
  put({{"model.multi_modal_projector.linear_1.bias", random_tensor({32}, DType::kF16, 1, 0, 1)}});
  refuses(ErrorKind::kInput, "found F16, expected F32", base, parts, temp_.file("out"));
  EXPECT_FALSE(std::filesystem::exists(temp_.file("out")));
}

TEST_F(Merge, OtherTensorsKeepTheirBytesNamesAndShards) {
  const std::string base = this->base({.dtype = DType::kBF16, .shards = 3, .new_clip_names = true}),
                    out = temp_.file("out");
  const std::string index = read_file(base + "/model.safetensors.index.json");
  EXPECT_EQ(merge_to_dir(base, adapter(), out).shards, 3);
  EXPECT_EQ(read_file(out + "/model.safetensors.index.json"), index);
  EXPECT_EQ(read_file(out + "/config.json"), read_file(base + "/config.json"));
  int changed = 0;
  for (const SafetensorsFile& before : ModelDir::open(base).files) {
    const SafetensorsFile after(out + "/" +
                                std::filesystem::path(before.path()).filename().string());
    ASSERT_EQ(after.tensors().size(), before.tensors().size());
    EXPECT_EQ(after.metadata(), before.metadata());
    for (const auto& [name, info] : before.tensors()) {
      EXPECT_EQ(after.info(name).dtype, DType::kBF16);
      changed += bytes_of(before, name) != bytes_of(after, name);
    }
  }
  EXPECT_EQ(changed, 8);
}

TEST_F(Merge, OneRoundingFromFp32) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    TempDir temp;
    const std::string base = write_tiny_llava(temp.file("base"), {.dtype = dtype});
    merge_to_dir(base, adapter(), temp.file("out"));
    Model model = load_tiny(base);  // FP32, exact
    load_adapter(model, AdapterDir::open(temp_.file("adapter")));
    merge_adapters(*model);
    const auto want = model_parameters(*model);
    Model merged = load_tiny(temp.file("out"), to_scalar_type(dtype));
    for (const auto& [name, tensor] : model_parameters(*merged)) {
      EXPECT_TRUE(tensor.equal(want.at(name).to(to_scalar_type(dtype)))) << name;
    }
  }
}

/// Matrices with more elements than are merged at once: few long rows, and many short ones.
TEST_F(Merge, LargeTensorsArePiecedTogether) {
  constexpr int64_t kWide = 33'007;
  TinyAdapter wide = adapter_in("d2");
  const std::string mlp = "model.language_model.layers.1.mlp.";
  wide.lora = {{mlp + "down_proj", {kWide, 32}}, {mlp + "gate_proj", {32, kWide}}};
  const std::string base = this->base({.intermediate = kWide});
  for (const bool dora : {false, true}) {
    TempDir temp;
    wide.config["use_dora"] = dora;
    wide.write(temp.file("adapter"), [&](StoredTensors& tensors) {
      for (const auto& [module, sides] : wide.lora) {
        if (!dora) continue;
        tensors["base_model.model." + module + ".lora_magnitude_vector"] =
            random_tensor({sides[1]}, DType::kF32, 77, 1, 0.3);
      }
    });
    EXPECT_EQ(merge_to_dir(base, temp.file("adapter"), temp.file("out")).tensors_merged, 2);
    Model model = load_tiny(base);
    load_adapter(model, AdapterDir::open(temp.file("adapter")));
    merge_adapters(*model);
    const auto want = model_parameters(*model);
    Model merged = load_tiny(temp.file("out"));
    for (const auto& [name, tensor] : model_parameters(*merged)) {
      // Sums of two products; for DoRA, norms of 33,007 squares in another order.
      const double largest = want.at(name).abs().max().item<double>();
      EXPECT_LE((tensor - want.at(name)).abs().max().item<double>(), 0x1p-20 * largest) << name;
    }
  }
}

TEST_F(Merge, ATiedHeadKeepsTheBasesEmbeddingWhereTheAdapterHasAnother) {
  const auto with_head = [](StoredTensors& tensors) {
    tensors["language_model.lm_head.weight"] =
        tensors.at("language_model.model.embed_tokens.weight");
  };
  const std::string base = write_tiny_llava(temp_.file("base"), {.tied = true}, with_head);
  adapter_.full = {{"model.language_model.embed_tokens.weight", {64, 32}}};
  adapter_.config["modules_to_save"] = {"embed_tokens"};
  merge_to_dir(base, adapter(), temp_.file("out"));
  const SafetensorsFile out(temp_.file("out") + "/model.safetensors");
  const SafetensorsFile before(base + "/model.safetensors"),
      saved(temp_.file("adapter") + "/adapter_model.safetensors");
  const std::string embedding = "language_model.model.embed_tokens.weight";
  EXPECT_TRUE(bytes_of(out, "language_model.lm_head.weight") == bytes_of(before, embedding));
  EXPECT_TRUE(bytes_of(out, embedding) ==
              bytes_of(saved, "base_model.model.model.language_model.embed_tokens.weight"));
  EXPECT_FALSE(ModelDir::open(temp_.file("out")).config.text.tie_embeddings);
  load_tiny(temp_.file("out"));
}

TEST_F(Merge, SideFilesComeAlong) {
  const std::string base = this->base();
  const std::vector<std::string> kept = {"tokenizer.json",
                                         "tokenizer_config.json",
                                         "tokenizer.model",
                                         "qwen.tiktoken",
                                         "vocab.txt",
                                         "processor_config.json",
                                         "preprocessor_config.json",
                                         "video_preprocessor_config.json",
                                         "one_of_the_future_config.json",
                                         "chat_template.jinja",
                                         "additional_chat_templates/tool_use.jinja",
                                         "processing_own.py",
                                         "generation_config.json",
                                         "LICENSE",
                                         "LICENSE-weights.md",
                                         "Notice.txt"},
                                 left = {"pytorch_model.bin",   "pytorch_model.bin.index.json",
                                         "consolidated.00.pth", "params.json",
                                         "trainer_state.json",  "eval_results.json",
                                         "lft_model.json.bak",  ".hidden.json",
                                         "README.md",           "assets/picture.json"};
  for (const auto& names : {kept, left}) {
    for (const std::string& name : names) temp_.write("base/" + name, name);
  }
  // As in a snapshot of the hub's cache.
  temp_.write("blob", "linked");
  std::filesystem::create_symlink(temp_.file("blob"), base + "/special_tokens_map.json");
  merge_to_dir(base, adapter(), temp_.file("out"));
  for (const std::string& name : kept)
    EXPECT_EQ(read_file(temp_.file("out") + "/" + name), name) << name;
  for (const std::string& name : left) EXPECT_FALSE(path_exists(temp_.file("out") + "/" + name));
  EXPECT_EQ(read_file(temp_.file("out") + "/special_tokens_map.json"), "linked");
  EXPECT_TRUE(std::filesystem::is_regular_file(
      std::filesystem::symlink_status(temp_.file("out") + "/special_tokens_map.json")));
}

TEST_F(Merge, OutputNeverTouchesAnInput) {
  const std::string base = this->base(), adapter = this->adapter();
  for (const std::string& input : {base, adapter}) {
    refuses(ErrorKind::kUsage, "touch an input", base, adapter, input);
    refuses(ErrorKind::kUsage, "touch an input", base, adapter, input + "/out");
  }
  refuses(ErrorKind::kUsage, "touch an input", base, adapter, temp_.path());
  std::filesystem::create_directory_symlink(base, temp_.file("link"));
  refuses(ErrorKind::kUsage, "touch an input", base, adapter, temp_.file("link") + "/out");
  temp_.write("full/notes.txt", "mine");
  refuses(ErrorKind::kUsage, "not empty", base, adapter, temp_.file("full"));
  EXPECT_EQ(read_file(temp_.file("full") + "/notes.txt"), "mine");
  refuses(ErrorKind::kUsage, "a file", base, adapter, temp_.write("file", ""));
}

TEST_F(Merge, RepeatedIntoTheSameFolderButNotOntoItself) {
  const std::string base = this->base(), adapter = this->adapter(), out = temp_.file("out");
  merge_to_dir(base, adapter, out);
  const std::string first = read_file(out + "/model.safetensors");
  merge_to_dir(base, adapter, out);
  EXPECT_EQ(read_file(out + "/model.safetensors"), first);
  refuses(ErrorKind::kUsage, "merged into this model already", out, adapter, temp_.file("again"));
}

TEST_F(Merge, TheMergeOfAnotherBaseIsNotReplaced) {
  const std::string base = this->base(), adapter = this->adapter(), out = temp_.file("out");
  const std::string other = write_tiny_llava(temp_.file("other"), {.seed = 2});
  merge_to_dir(other, adapter, out);
  const std::string first = read_file(out + "/model.safetensors");
  refuses(ErrorKind::kUsage, "the output is a merge of another base", base, adapter, out);
  refuses(ErrorKind::kUsage, "a merge of " + ModelDir::open(other).path, base, adapter, out);
  EXPECT_EQ(read_file(out + "/model.safetensors"), first);
}

TEST_F(Merge, NoOpIsRefused) {
  TinyAdapter plain = adapter_in("d2");
  const std::string dir = plain.write(temp_.file("zero"), [](StoredTensors& tensors) {
    for (auto& [name, tensor] : tensors) {
      if (name.ends_with("lora_B.weight")) tensor.bytes.assign(tensor.bytes.size(), '\0');
    }
  });
  refuses(ErrorKind::kInput, "the adapter is a no-op", base(), dir, temp_.file("out"));
  EXPECT_FALSE(path_exists(temp_.file("out")));
}

TEST_F(Merge, WrongBaseIsRefused) {
  const std::string base = this->base();
  Model model = load_tiny(base);
  load_adapter(model, AdapterDir::open(adapter()));
  save_adapter(temp_.file("saved"), model, {.variant = "lora", .rank = 2, .alpha = 3},
               {"projector"}, {base, base_fingerprint(ModelDir::open(base)), "plain", "pad"});
  merge_to_dir(base, temp_.file("saved"), temp_.file("out"));
  const AdapterNotes notes = read_model_notes(temp_.file("out"));
  EXPECT_EQ(notes.input.template_name, "plain");
  EXPECT_EQ(notes.input.image_fit, "pad");
  EXPECT_EQ(notes.base_path, ModelDir::open(base).path);
  const std::string other = write_tiny_llava(temp_.file("other"), {.seed = 2});
  refuses(ErrorKind::kInput, "another base model", other, temp_.file("saved"), temp_.file("out2"));
}

TEST_F(Merge, AnAdapterWithoutNotesLeavesTheBasesStanding) {
  const std::string base = this->base();
  merge_to_dir(base, adapter(), temp_.file("out"));
  EXPECT_FALSE(path_exists(temp_.file("out") + "/lft_model.json"));
  temp_.write(
      "base/lft_model.json",
      R"({"base_path": "", "base_fingerprint": "", "template": "llava-hf", "image_fit": "crop"})");
  temp_.write("base/preprocessor_config.json", R"({"do_center_crop": true})");
  merge_to_dir(base, adapter(), temp_.file("out"));
  const AdapterNotes notes = read_model_notes(temp_.file("out"));
  EXPECT_EQ(notes.input.template_name, "llava-hf");
  EXPECT_EQ(notes.input.image_fit, "crop");
  EXPECT_EQ(read_file(temp_.file("out") + "/preprocessor_config.json"),
            R"({"do_center_crop": true})");
}

TEST_F(Merge, OverflowOfTheStoredTypeIsNumeric) {
  const std::string base = this->base({.dtype = DType::kF16});
  adapter_.config["lora_alpha"] = 1e7;
  refuses(ErrorKind::kNumeric, "merged weight is not finite", base, adapter(), temp_.file("out"));
  EXPECT_FALSE(path_exists(temp_.file("out")));
}

TEST_F(Merge, QuantisedBaseIsRefused) {
  nlohmann::json config = TinyLlava{}.config();
  config["quantization_config"] = {{"quant_method", "gptq"}};
  const std::string base = this->base();
  temp_.write("base/config.json", config.dump());
  refuses(ErrorKind::kInput, "quantised", base, adapter(), temp_.file("out"));
}

TEST(SaveModel, RoundTripsWithConfigAndSideFiles) {
  TempDir temp;
  const std::string base =
      write_tiny_llava(temp.file("base"), {.dtype = DType::kBF16, .shards = 2});
  temp.write("base/tokenizer.json", "{}");
  const ModelDir source = ModelDir::open(base);
  Model model = load_model(source, at::kBFloat16, at::kCPU);
  make_trainable(*model, {"all"});  // FP32 masters
  save_model(temp.file("saved"), model, source);
  EXPECT_FALSE(path_exists(temp.file("saved") + "/lft_model.json"));
  const ModelDir saved = ModelDir::open(temp.file("saved"));
  EXPECT_EQ(saved.stored_dtype, DType::kF32);
  EXPECT_EQ(saved.config.stored_dtype, "float32");
  EXPECT_TRUE(path_exists(temp.file("saved") + "/tokenizer.json"));
  EXPECT_FALSE(path_exists(temp.file("saved") + "/model.safetensors.index.json"));
  Model again = load_model(saved, at::kFloat, at::kCPU);
  const auto want = model_parameters(*model);
  for (const auto& [name, tensor] : model_parameters(*again))
    EXPECT_TRUE(tensor.equal(want.at(name))) << name;
}

}  // namespace
}  // namespace lft::merge_test
