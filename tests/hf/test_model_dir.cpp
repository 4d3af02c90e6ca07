#include <gtest/gtest.h>

#include <filesystem>

#include "hf/support.h"
#include "models/lora/inject_select.h"
#include "models/ops/core/few_rows.h"
#include "src/hf/file_weight.h"
#include "src/hf/model_dir.h"
#include "src/hf/model_dir_fingerprint.h"
#include "src/hf/weights.h"
#include "src/hf/weights_load.h"

namespace lft::model_dir_test {
using namespace lft::hf;
using namespace lft::io;
using namespace lft::family;
using namespace lft::llava;
namespace {

using namespace test;
constexpr const char* kProjector = "multi_modal_projector.linear_1.weight";

void expect_same_weights(const std::string& a, const std::string& b) {
  Model first = load_tiny(a), second = load_tiny(b);
  const auto left = model_parameters(*first), right = model_parameters(*second);
  ASSERT_EQ(left.size(), right.size());
  for (const auto& [name, tensor] : left) EXPECT_TRUE(tensor.equal(right.at(name))) << name;
}

TEST(ModelDir, EveryElementIsTheFiles) {
  TempDir temp;
  const TinyLlava tiny;
  Model model = load_tiny(write_tiny_llava(temp.file("m"), tiny));
  for (const auto& [name, stored] : tiny_llava_tensors(tiny)) {
    const at::Tensor tensor = model_parameters(*model).at(name).contiguous();
    ASSERT_EQ(tensor.nbytes(), stored.bytes.size()) << name;
    EXPECT_EQ(std::memcmp(tensor.const_data_ptr(), stored.bytes.data(), stored.bytes.size()), 0)
        << name;
    EXPECT_FALSE(tensor.requires_grad()) << name;
  }
}

TEST(ModelDir, LayoutOnDiskChangesNothing) {
  TempDir temp;
  const std::string single = write_tiny_llava(temp.file("single"));
  const std::string sharded = write_tiny_llava(temp.file("sharded"), {.shards = 3});
  const std::string renamed = write_tiny_llava(temp.file("renamed"), {.new_clip_names = true});
  // Ignored tensors of old checkpoints.
  const std::string old = write_tiny_llava(temp.file("old"), {}, [](StoredTensors& tensors) {
    tensors["vision_tower.vision_model.embeddings.position_ids"] =
        random_tensor({1, 17}, DType::kF32, 3, 0, 1);
    tensors["language_model.model.layers.0.self_attn.rotary_emb.inv_freq"] =
        random_tensor({4}, DType::kF32, 3, 0, 1);
  });
  for (const std::string& other : {sharded, renamed, old}) {
    expect_same_weights(single, other);
    EXPECT_EQ(base_fingerprint(ModelDir::open(single)), base_fingerprint(ModelDir::open(other)));
  }
}

TEST(ModelDir, FingerprintSeesWeightsAndConfig) {
  TempDir temp;
  const std::string one = base_fingerprint(ModelDir::open(write_tiny_llava(temp.file("1"))));
  EXPECT_NE(one, base_fingerprint(ModelDir::open(write_tiny_llava(temp.file("2"), {.seed = 2}))));
  EXPECT_NE(
      one, base_fingerprint(ModelDir::open(write_tiny_llava(temp.file("3"), {.image_token = 61}))));
  EXPECT_NE(one, base_fingerprint(
                     ModelDir::open(write_tiny_llava(temp.file("4"), {.dtype = DType::kBF16}))));
}

TEST(ModelDir, EndTokensAreThoseOfTheGenerationConfig) {
  TempDir temp;
  const std::string dir = write_tiny_llava(temp.file("m"));
  const auto ends = [&](const std::string& json) {
    temp.write("m/generation_config.json", json);
    return ModelDir::config_only(dir).config.eos_tokens;
  };
  EXPECT_EQ(ends(R"({"eos_token_id": 7})"), std::vector<int64_t>{7});
  EXPECT_EQ(ends(R"({"eos_token_id": [7, 9]})"), (std::vector<int64_t>{7, 9}));
  EXPECT_EQ(ends(R"({"bos_token_id": 1})"), std::vector<int64_t>{2});
  EXPECT_EQ(ends(R"({"eos_token_id": null})"), std::vector<int64_t>{2});
  EXPECT_EQ(ends("no JSON"), std::vector<int64_t>{2});
  EXPECT_LFT_ERROR(ErrorKind::kInput, "eos_token_id is no token",
                   ends(R"({"eos_token_id": "</s>"})"));
}

TEST(ModelDir, SymlinkedShardsOpen) {
  TempDir temp;
  const std::string sharded = write_tiny_llava(temp.file("cache"), {.shards = 2});
  std::filesystem::create_directory(temp.file("m"));
  for (const auto& entry : std::filesystem::directory_iterator(sharded)) {
    std::filesystem::create_symlink(entry.path(),
                                    temp.file("m") + "/" + entry.path().filename().string());
  }
  expect_same_weights(sharded, temp.file("m"));
}

TEST(ModelDir, EveryMisfitIsInOneError) {
  TempDir temp;
  const std::string dir = write_tiny_llava(temp.file("m"), {}, [](StoredTensors& tensors) {
    for (int i = 0; i < 7; ++i)
      tensors["extra." + std::to_string(i)] = random_tensor({2, 3}, DType::kF32, 1, 0, 1);
    tensors.erase("language_model.model.norm.weight");
    tensors[kProjector] = random_tensor({32, 25}, DType::kF32, 1, 0, 1);
    StoredTensor& integers = tensors["multi_modal_projector.linear_2.bias"];
    integers.dtype = DType::kI32;
  });
  EXPECT_LFT_ERROR(ErrorKind::kInput, "1 missing:\n      language_model.model.norm.weight [32]",
                   ModelDir::open(dir));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "7 unknown:\n      extra.0 [2, 3]", ModelDir::open(dir));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "and 2 more", ModelDir::open(dir));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "linear_1.weight: found [32, 25], expected [32, 24]",
                   ModelDir::open(dir));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "linear_2.bias: found I32, expected F32, F16 or BF16",
                   ModelDir::open(dir));
}

TEST(ModelDir, BareConfigMeansSevenBillionAndFailsFromHeaders) {
  TempDir temp;
  const std::string dir = write_tiny_llava(temp.file("m"));
  // transformers' defaults are inconsistent: 32000 tokens, and an image token with the id
  // 32000.
  temp.write("m/config.json", R"({"model_type": "llava"})");
  EXPECT_LFT_ERROR(ErrorKind::kInput, "config.json", ModelDir::open(dir));
  temp.write("m/config.json", R"({"model_type": "llava", "image_token_index": 60})");
  EXPECT_LFT_ERROR(ErrorKind::kInput, "found [24, 3, 4, 4], expected [1024, 3, 14, 14]",
                   ModelDir::open(dir));
}

TEST(ModelDir, BothClipSpellingsAtOnceAreTwice) {
  TempDir temp;
  const std::string dir = write_tiny_llava(temp.file("m"), {}, [](StoredTensors& tensors) {
    tensors["vision_tower.pre_layrnorm.bias"] =
        tensors.at("vision_tower.vision_model.pre_layrnorm.bias");
  });
  EXPECT_LFT_ERROR(ErrorKind::kInput, "1 stored twice", ModelDir::open(dir));
}

TEST(ModelDir, WeightFilesThatAreNone) {
  TempDir temp;
  EXPECT_LFT_ERROR(ErrorKind::kInput, "does not exist", ModelDir::open(temp.file("nowhere")));
  temp.write("m/config.json", TinyLlava{}.config().dump());
  EXPECT_LFT_ERROR(ErrorKind::kInput, "no weights", ModelDir::open(temp.file("m")));
  temp.write("m/pytorch_model.bin", "never opened");
  EXPECT_LFT_ERROR(ErrorKind::kInput, "convert to safetensors", ModelDir::open(temp.file("m")));
  temp.write("m/model.safetensors",
             "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 14\n");
  EXPECT_LFT_ERROR(ErrorKind::kInput, "Git LFS pointer", ModelDir::open(temp.file("m")));
  temp.write("m/model.safetensors", "short");
  EXPECT_LFT_ERROR(ErrorKind::kInput, "model.safetensors", ModelDir::open(temp.file("m")));
}

TEST(ModelDir, QuantisedIsRefusedByItsMethod) {
  TempDir temp;
  const std::string dir = write_tiny_llava(temp.file("m"));
  const nlohmann::json method = {{"quant_method", "bitsandbytes"}};
  nlohmann::json config = TinyLlava{}.config();
  config["quantization_config"] = nlohmann::json::object();
  temp.write("m/config.json", config.dump());
  ModelDir::open(dir);  // nothing is quantised
  config["text_config"]["quantization_config"] = method;
  temp.write("m/config.json", config.dump());
  EXPECT_LFT_ERROR(ErrorKind::kInput, "text_config.quantization_config", ModelDir::open(dir));
  config["quantization_config"] = method;
  temp.write("m/config.json", config.dump());
  EXPECT_LFT_ERROR(ErrorKind::kInput, "the checkpoint is quantised", ModelDir::open(dir));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "\"bitsandbytes\"", ModelDir::open(dir));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "model.base_dtype: nf4 or fp8", ModelDir::open(dir));
}

/// A tensor without a place in the model may have any type of the format; one of the model may not.
TEST(ModelDir, NewerDtypesAreReadOnlyWhereTheModelHasNoPlace) {
  const std::vector<std::pair<DType, std::string>> types = {{DType::kC64, std::string(48, '\1')},
                                                            {DType::kF8E8M0, std::string(6, '\1')},
                                                            {DType::kF8E4M3, std::string(6, '\1')},
                                                            {DType::kF6E3M2, std::string(6, '\1')},
                                                            {DType::kF4, std::string(3, '\1')}};
  for (const auto& [dtype, bytes] : types) {
    TempDir temp;
    StoredTensor odd{dtype, {2, 3}, bytes};
    if (dtype == DType::kF6E3M2) odd.shape = {2, 4};
    const auto with = [&](const std::string& name) {
      return write_tiny_llava(temp.file(name), {}, [&](StoredTensors& all) { all[name] = odd; });
    };
    EXPECT_EQ(ModelDir::open(with("extra")).stored_dtype, DType::kF32) << dtype_name(dtype);
    EXPECT_LFT_ERROR(ErrorKind::kInput, std::string("found ") + dtype_name(dtype),
                     ModelDir::open(with("language_model.model.norm.weight")));
  }
}

TEST(ModelDir, NamesOfDtypesAreThoseOfTorch) {
  TempDir temp;
  const std::string dir = write_tiny_llava(temp.file("m"));
  nlohmann::json config = TinyLlava{}.config();
  const auto named = [&](const char* name) {
    config["torch_dtype"] = name;
    temp.write("m/config.json", config.dump());
    return ModelDir::config_only(dir).stored_dtype;
  };
  EXPECT_EQ(named("half"), DType::kF16);
  EXPECT_EQ(named("torch.float16"), DType::kF16);
  EXPECT_EQ(named("bfloat16"), DType::kBF16);
  EXPECT_EQ(named("float"), DType::kF32);
  EXPECT_EQ(named("auto"), DType::kF32);
  EXPECT_LFT_ERROR(ErrorKind::kInput, "torch_dtype", named("int8"));
}

TEST(ModelFolder, WhatIsGivenInsteadIsNamed) {
  TempDir temp;
  EXPECT_LFT_ERROR(ErrorKind::kInput,
                   "next: hf download Qwen/Qwen2.5-VL-3B --local-dir Qwen/Qwen2.5-VL-3B",
                   ModelDir::open("Qwen/Qwen2.5-VL-3B"));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "lft downloads nothing", ModelDir::open("some/model"));
  const std::string cached = temp.file("models--Org--Name"), one = cached + "/snapshots/abc";
  write_tiny_llava(one);
  EXPECT_LFT_ERROR(ErrorKind::kInput, "next: give " + one, ModelDir::open(cached));
  write_tiny_llava(cached + "/snapshots/def");
  temp.write("models--Org--Name/refs/main", "def\n");
  EXPECT_LFT_ERROR(ErrorKind::kInput, "/snapshots/def", ModelDir::open(cached));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "/snapshots/def", ModelDir::open(cached + "/snapshots"));
  for (const char* name : {"model.safetensors", "config.json"}) {
    std::filesystem::remove(one + "/" + name);
    std::filesystem::create_symlink("../../blobs/0", one + "/" + name);
    EXPECT_LFT_ERROR(ErrorKind::kInput, name, ModelDir::open(one));
    EXPECT_LFT_ERROR(ErrorKind::kInput, "next: hf download Org/Name", ModelDir::open(one));
  }
  temp.write("adapter/adapter_config.json", "{}");
  EXPECT_LFT_ERROR(ErrorKind::kInput, "an adapter's folder", ModelDir::open(temp.file("adapter")));
  write_tiny_llava(temp.file("above/model"));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "next: give ", ModelDir::open(temp.file("above")));
}

class Index : public ::testing::Test {
 protected:
  Index() : dir_(write_tiny_llava(temp_.file("m"), {.shards = 2})) {
    json_ = read_json_file(dir_ + "/model.safetensors.index.json");
  }
  void refuses(const std::string& piece) {
    temp_.write("m/model.safetensors.index.json", json_.dump());
    EXPECT_LFT_ERROR(ErrorKind::kInput, piece, ModelDir::open(dir_));
  }
  TempDir temp_;
  std::string dir_;
  Json json_;
};

TEST_F(Index, ShardNamesStayInTheFolder) {
  for (const char* name :
       {"../model.safetensors", "/etc/x.safetensors", "", "model.bin", "..", ".safetensors",
        "a//etc/../x.safetensors", "a/../../x.safetensors", "a/", "a/.hidden/x.safetensors"}) {
    json_["weight_map"][kProjector] = name;
    refuses("a shard has no valid name");
  }
  json_["weight_map"][kProjector] = std::string("a\0.safetensors", 14);
  refuses("a shard has no valid name");
  json_["weight_map"][kProjector] = 3;
  refuses("a shard has no valid name");
}

TEST_F(Index, MissingShard) {
  std::filesystem::remove(dir_ + "/model-00002-of-00002.safetensors");
  refuses("model-00002-of-00002.safetensors");
}

TEST_F(Index, IsReadForItsShardsAlone) {
  const std::string whole = write_tiny_llava(temp_.file("whole"));
  const auto reads = [&] {
    temp_.write("m/model.safetensors.index.json", json_.dump());
    expect_same_weights(dir_, whole);
  };
  json_["metadata"]["total_size"] = "3 GB";
  json_["weight_map"]["ghost.inv_freq"] = "model-00001-of-00002.safetensors";
  json_["weight_map"].erase(kProjector);
  reads();
  json_["weight_map"][kProjector] = "model-00001-of-00002.safetensors";
  reads();
  json_["weight_map"][kProjector] = "model-00002-of-00002.safetensors";
  reads();
  make_dirs(dir_ + "/sub");
  for (const char* name : {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"})
    std::filesystem::rename(dir_ + "/" + name, dir_ + "/sub/" + name);
  for (Json& shard : json_["weight_map"]) shard = "sub/" + shard.get<std::string>();
  reads();
}

TEST_F(Index, WithoutAMapOrWithKeysTwice) {
  json_["weight_map"] = Json::array();
  refuses("no weight_map");
  temp_.write("m/model.safetensors.index.json",
              R"({"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}})");
  EXPECT_LFT_ERROR(ErrorKind::kInput, "\"a\"", ModelDir::open(dir_));
}

TEST(LoadLlava, NonFiniteWeightIsNamed) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    TempDir temp;
    const std::string dir =
        write_tiny_llava(temp.file("m"), {.dtype = dtype}, [&](StoredTensors& tensors) {
          const int64_t size = dtype_size(dtype);
          std::string& bytes = tensors.at(kProjector).bytes;
          bytes[37 * size + size - 1] = '\x7f';
          bytes[37 * size + size - 2] = dtype == DType::kF16 ? '\x00' : '\xff';
        });
    EXPECT_LFT_ERROR(ErrorKind::kInput, "at flat index 37 of [32, 24]", load_tiny(dir));
    EXPECT_LFT_ERROR(ErrorKind::kInput, kProjector, load_tiny(dir));
    load_model(ModelDir::open(dir), at::kFloat, at::kCPU, /*check_finite=*/false);
  }
}

TEST(LoadLlava, LayersInFilesAreTheSameModel) {
  TempDir temp;
  const std::string path = write_tiny_llava(temp.file("m"), {.dtype = DType::kBF16, .shards = 2});
  const auto dir = std::make_shared<const ModelDir>(ModelDir::open(path));
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    Model in_memory = load_tiny(path, dtype),
          in_files = load_model(*dir, dtype, at::kCPU, true, {.in_files = dir});
    for (const LinearSite& site : linear_sites(*in_files)) {
      EXPECT_EQ(site.layer->stored().coded() != nullptr, site.name.starts_with(kLayers));
    }
    EXPECT_TRUE(logits_of(in_files).equal(logits_of(in_memory)));
    EXPECT_TRUE(logits_of(in_files).equal(logits_of(in_memory)));  // from reused memory
    const ops::FewRowsGuard few_rows;
    EXPECT_TRUE(logits_of(in_files).equal(logits_of(in_memory)));
  }
}

TEST(LoadLlava, NonFiniteWeightInAFileIsNamedAtItsUse) {
  TempDir temp;
  const std::string layer = kLayers + "1.mlp.up_proj.weight";
  const std::string path = write_tiny_llava(temp.file("m"), {}, [&](StoredTensors& tensors) {
    tensors.at(layer).bytes.replace(4 * 40, 4, std::string("\x00\x00\x80\x7f", 4));
  });
  const auto dir = std::make_shared<const ModelDir>(ModelDir::open(path));
  Model model = load_model(*dir, at::kFloat, at::kCPU, true, {.in_files = dir});
  EXPECT_LFT_ERROR(ErrorKind::kInput, "at flat index 40 of [48, 32]", logits_of(model));
  const ops::FewRowsGuard few_rows;
  EXPECT_LFT_ERROR(ErrorKind::kInput, layer, logits_of(model));
}

TEST(ReadBuffers, MemoryOfWhatIsHeldIsNotUsedAgain) {
  ReadBuffers buffers;
  at::Tensor first = buffers.take(100, at::kFloat);
  const void* const place = first.const_data_ptr();
  EXPECT_NE(buffers.take(50, at::kFloat).const_data_ptr(), place);
  first.reset();
  EXPECT_EQ(buffers.take(80, at::kFloat).const_data_ptr(), place);
  EXPECT_EQ(buffers.take(80, at::kHalf).numel(), 80);  // another kind uses other memory
  EXPECT_EQ(buffers.take(100, at::kFloat).scalar_type(), at::kFloat);
}

TEST(LoadLlava, WeightBeyondFp16IsNamed) {
  TempDir temp;
  const std::string dir = write_tiny_llava(temp.file("m"), {}, [](StoredTensors& tensors) {
    tensors.at(kProjector).bytes.replace(0, 4, element_bytes(70000.0f, DType::kF32));
  });
  EXPECT_LFT_ERROR(ErrorKind::kInput, "does not fit fp16", load_tiny(dir, at::kHalf));
  load_tiny(dir, at::kBFloat16);
}

TEST(LoadLlava, ConvertsAsTorchDoes) {
  TempDir temp;
  const std::string dir = write_tiny_llava(temp.file("m"));
  Model wide = load_tiny(dir), narrow = load_tiny(dir, at::kBFloat16);
  for (const auto& [name, tensor] : model_parameters(*wide)) {
    EXPECT_TRUE(tensor.to(at::kBFloat16).equal(model_parameters(*narrow).at(name))) << name;
  }
}

TEST(LoadLlava, AnFp16CheckpointIsHeldInBf16AsTorchRoundsIt) {
  TempDir temp;
  const std::string dir = write_tiny_llava(temp.file("m"), {.dtype = DType::kF16});
  const at::ScalarType held =
      choose_base_dtype(ModelDir::open(dir), "auto", at::kBFloat16, at::kCPU, nullptr);
  Model stored = load_tiny(dir, at::kHalf), model = load_tiny(dir, held);
  for (const auto& [name, tensor] : model_parameters(*stored)) {
    const at::Tensor got = model_parameters(*model).at(name);
    EXPECT_EQ(got.scalar_type(), at::kBFloat16) << name;
    EXPECT_TRUE(tensor.to(at::kBFloat16).equal(got)) << name;
  }
}

TEST(LoadLlava, ATiedHeadIsReadAsTransformersReadsIt) {
  TempDir temp;
  const std::string embedding = "language_model.model.embed_tokens.weight",
                    head = "language_model.lm_head.weight";
  const std::string plain = write_tiny_llava(temp.file("plain"), {.tied = true});
  const std::string equal =
      write_tiny_llava(temp.file("equal"), {.tied = true},
                       [&](StoredTensors& tensors) { tensors[head] = tensors.at(embedding); });
  const std::string alone =
      write_tiny_llava(temp.file("alone"), {.tied = true}, [&](StoredTensors& tensors) {
        tensors[head] = tensors.at(embedding);
        tensors.erase(embedding);
      });
  expect_same_weights(plain, equal);
  expect_same_weights(plain, alone);
  const StoredTensor other = random_tensor({64, 32}, DType::kF32, 9, 0, 1);
  const std::string differs = write_tiny_llava(
      temp.file("differs"), {.tied = true}, [&](StoredTensors& tensors) { tensors[head] = other; });
  ::testing::internal::CaptureStderr();
  Model model = load_tiny(differs);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("but the weights differ: " + head),
            std::string::npos);
  const at::Tensor read = model_parameters(*model).at(head);
  EXPECT_EQ(std::memcmp(read.const_data_ptr(), other.bytes.data(), other.bytes.size()), 0);
}

TEST(BaseDtype, AutoIsAsStoredButNotHalfWhereBf16IsComputed) {
  for (const at::ScalarType compute : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const at::DeviceType device : {at::kCPU, at::kCUDA, at::kPrivateUse1}) {
      EXPECT_EQ(auto_base_dtype(DType::kF32, compute, device), DType::kF32);
      EXPECT_EQ(auto_base_dtype(DType::kBF16, compute, device), DType::kBF16);
    }
    EXPECT_EQ(auto_base_dtype(DType::kF16, compute, at::kCPU), DType::kBF16);
  }
  for (const at::DeviceType device : {at::kCUDA, at::kPrivateUse1}) {
    EXPECT_EQ(auto_base_dtype(DType::kF16, at::kBFloat16, device), DType::kBF16);
    EXPECT_EQ(auto_base_dtype(DType::kF16, at::kHalf, device), DType::kF16);
    EXPECT_EQ(auto_base_dtype(DType::kF16, at::kFloat, device), DType::kF16);
  }
}

TEST(BaseDtype, SaysInOneLineWhereItIsNotAsStored) {
  ModelDir dir;
  std::string notice;
  at::ScalarType compute = at::kFloat;
  const auto chosen = [&](DType stored, const std::string& asked, at::Device device) {
    dir.stored_dtype = stored;
    notice.clear();
    return choose_base_dtype(dir, asked, compute, device, &notice);
  };
  EXPECT_EQ(chosen(DType::kF32, "auto", at::kCPU), at::kFloat);
  EXPECT_EQ(notice, "");
  EXPECT_EQ(chosen(DType::kF16, "auto", at::kCUDA), at::kHalf);
  EXPECT_EQ(notice, "");
  EXPECT_EQ(chosen(DType::kF16, "auto", at::kCPU), at::kBFloat16);
  EXPECT_NE(notice.find("stored in fp16 and loaded as bf16"), std::string::npos);
  compute = at::kBFloat16;
  EXPECT_EQ(chosen(DType::kF16, "auto", at::kCUDA), at::kBFloat16);
  EXPECT_EQ(notice,
            "the frozen weights are stored in fp16 and loaded as bf16 (fp16 would be cast in every "
            "product; model.base_dtype: fp16 keeps it)");
  EXPECT_EQ(chosen(DType::kF16, "fp16", at::kCUDA), at::kHalf);
  EXPECT_EQ(notice, "");
  EXPECT_EQ(chosen(DType::kF16, "fp16", at::kCPU), at::kHalf);
  EXPECT_EQ(chosen(DType::kBF16, "fp32", at::kCPU), at::kFloat);
  EXPECT_NE(notice, "");
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "model.base_dtype", chosen(DType::kF32, "int8", at::kCPU));
}

TEST(BaseDtype, MixedCheckpointIsWhatMostOfItsBytesAre) {
  TempDir temp;
  const std::string dir =
      write_tiny_llava(temp.file("m"), {.dtype = DType::kBF16}, [](StoredTensors& tensors) {
        tensors["language_model.model.norm.weight"] = random_tensor({32}, DType::kF32, 1, 1, 0.1);
      });
  EXPECT_EQ(ModelDir::open(dir).stored_dtype, DType::kBF16);
  load_tiny(dir, at::kBFloat16);
}

}  // namespace
}  // namespace lft::model_dir_test
