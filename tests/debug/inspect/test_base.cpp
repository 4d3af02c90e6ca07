// lft debug base: planted damage of a base model is reported by name, and an undamaged
// one has no findings.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "src/base/text.h"
#include "src/checkpoint/tensor_file.h"
#include "src/hf/adapter/adapter.h"
#include "src/hf/adapter/adapter_merge.h"
#include "src/io/files.h"
#include "src/train/proof/first_loss_trials.h"
#include "src/train/run/run.h"
#include "src/train/run/trainer.h"
#include "src/train/weights/inspect_base.h"
#include "support/expect_error.h"
#include "support/llava.h"
#include "support/tiny_llava.h"
#include "train/tiny_run.h"

namespace lft::base_test {
using namespace lft::checkpoint;
using namespace lft::train;
namespace {

namespace fs = std::filesystem;
const std::string kQuickstart = LFT_SOURCE_DIR "/recipes/quickstart/model";
const std::string kDecoder = "language_model.model.layers.";
const std::string kVision = "vision_tower.vision_model.encoder.layers.";
using Change = std::function<void(TensorMap&)>;

/// Writes a copy of the quickstart base, unchanged or changed, and returns its folder.
std::string quickstart_copy(const std::string& dir, const Change& change = nullptr) {
  io::make_dirs(dir);
  for (const auto& entry : fs::directory_iterator(kQuickstart)) {
    if (entry.path().extension() == ".json") fs::copy(entry.path(), dir);
  }
  TensorMap tensors = read_tensor_file(kQuickstart + "/model.safetensors");
  if (change) change(tensors);
  write_tensor_file(dir + "/model.safetensors", tensors);
  return dir;
}

void swap_layers(TensorMap& tensors, const std::string& layers, int a, int b) {
  const std::string of_a = layers + std::to_string(a) + ".",
                    of_b = layers + std::to_string(b) + ".";
  for (auto& [name, tensor] : tensors) {
    if (name.starts_with(of_a)) std::swap(tensor, tensors.at(of_b + name.substr(of_a.size())));
  }
}

at::Tensor normal(at::IntArrayRef shape, uint64_t seed) {
  return at::randn(shape, at::detail::createCPUGenerator(seed), at::TensorOptions()) * 0.02;
}

/// As initialised by transformers: normal matrices, norms of 1, biases of 0.
void initialise(TensorMap& tensors, const std::string& begin, uint64_t seed = 7) {
  for (auto& [name, tensor] : tensors) {
    if (!name.starts_with(begin)) continue;
    if (tensor.dim() > 1 || name.ends_with("class_embedding")) {
      tensor = normal(tensor.sizes(), ++seed).to(tensor.scalar_type());
    } else {
      tensor = at::full_like(tensor, name.ends_with("bias") ? 0 : 1);
    }
  }
}

void permute_rows(at::Tensor& table, uint64_t seed = 3) {
  const at::Tensor order = at::randperm(table.size(0), at::detail::createCPUGenerator(seed),
                                        at::TensorOptions(at::kLong));
  table = table.index_select(0, order);
}

void transpose(at::Tensor& matrix) { matrix = matrix.t().contiguous(); }

struct Fault {
  const char* label;
  Change change;
  std::string name, what;  // part of the first finding
};

class BaseFault : public ::testing::TestWithParam<Fault> {};

TEST_P(BaseFault, IsSuspectedFirstByName) {
  const test::TempDir scratch;
  const BaseReport report = inspect_base(quickstart_copy(scratch.file("base"), GetParam().change));
  ASSERT_FALSE(report.suspicions.empty()) << ::testing::PrintToString(base_lines(report));
  const train::Suspicion& first = report.suspicions.front();
  EXPECT_NE(first.name.find(GetParam().name), std::string::npos) << suspicion_line(first);
  EXPECT_NE(first.what.find(GetParam().what), std::string::npos) << suspicion_line(first);
  EXPECT_LE(report.suspicions.size(), 7u) << ::testing::PrintToString(base_lines(report));
}

/// `lft check` and `lft train` report nothing that `lft debug base` does not.
TEST_P(BaseFault, IsNotAnotherInASample) {
  const test::TempDir scratch;
  const std::string dir = quickstart_copy(scratch.file("base"), GetParam().change);
  const BaseReport report = inspect_base(dir);
  for (const train::Suspicion& one : sampled_suspicions(hf::ModelDir::open(dir))) {
    EXPECT_TRUE(std::ranges::any_of(report.suspicions, [&](const train::Suspicion& whole) {
      return whole.name == one.name && whole.what == one.what;
    })) << suspicion_line(one);
  }
}

std::vector<Fault> faults() {
  const std::string o = kDecoder + "2.self_attn.o_proj.weight";
  const std::string down = kDecoder + "1.mlp.down_proj.weight";
  const std::string embedding = "language_model.model.embed_tokens.weight";
  const std::string head = "language_model.lm_head.weight";
  std::vector<Fault> all = {
      {"RandomVisionTower", [](TensorMap& t) { initialise(t, "vision_tower."); },
       "the vision tower", "random"},
      {"RandomDecoder", [](TensorMap& t) { initialise(t, "language_model."); }, "the decoder",
       "random"},
      {"RandomLayer", [](TensorMap& t) { initialise(t, kDecoder + "2."); }, kDecoder + "2",
       "random"},
      {"RandomVisionLayer", [](TensorMap& t) { initialise(t, kVision + "1."); }, kVision + "1",
       "random"},
      {"RandomProjector", [](TensorMap& t) { initialise(t, "multi_modal_projector."); },
       "multi_modal_projector.linear_1", "random"},
      {"RandomMatrix", [](TensorMap& t) { initialise(t, kDecoder + "3.mlp.up_proj.weight"); },
       kDecoder + "3.mlp.up_proj.weight", "random"},
      {"RandomHead", [](TensorMap& t) { initialise(t, "language_model.lm_head."); },
       "language_model.lm_head.weight", "random"},
      {"PermutedHead", [=](TensorMap& t) { permute_rows(t.at(head)); }, head, "rows"},
      {"RolledHead", [=](TensorMap& t) { t.at(head) = t.at(head).roll(1, 0); }, head, "rows"},
      {"PermutedEmbedding", [=](TensorMap& t) { permute_rows(t.at(embedding)); }, head, "rows"},
      {"ScaledDown", [=](TensorMap& t) { t.at(down) = t.at(down).to(at::kFloat) * 1e4; }, down,
       "scale"},
      {"ShrunkDown", [=](TensorMap& t) { t.at(down) = t.at(down).to(at::kFloat) * 1e-3; }, down,
       "scale"},
      {"ScaledNorm",
       [](TensorMap& t) {
         at::Tensor& norm = t.at(kVision + "2.layer_norm1.weight");
         norm = norm.to(at::kFloat) * 1e4;
       },
       kVision + "2.layer_norm1.weight", "scale"},
      {"ScaledRow", [=](TensorMap& t) { t.at(down)[5] *= 1e4; }, down, "row"},
      {"OneHugeValue", [=](TensorMap& t) { t.at(down)[5][6] = 3e4; }, down, "of another scale"},
      {"ZeroRows", [=](TensorMap& t) { t.at(down).narrow(0, 32, 16).zero_(); }, down, "rows"},
      {"ConstantRows", [=](TensorMap& t) { t.at(o).narrow(0, 32, 16).fill_(0.5); }, o, "rows"},
      {"ZeroColumns", [=](TensorMap& t) { t.at(down).narrow(1, 3, 9).zero_(); }, down, "columns"},
      {"ZeroRowsOfTheEmbedding", [=](TensorMap& t) { t.at(embedding).narrow(0, 300, 64).zero_(); },
       embedding, "rows"},
      {"ZeroTensor", [=](TensorMap& t) { t.at(o).zero_(); }, o, "one number"},
      {"ZeroNorm", [](TensorMap& t) { t.at(kDecoder + "1.input_layernorm.weight").zero_(); },
       kDecoder + "1.input_layernorm.weight", "one number"},
      {"NotANumber", [=](TensorMap& t) { t.at(o)[7][9] = NAN; }, o, "not finite"},
      {"CopiedLayer",
       [](TensorMap& t) {
         for (auto& [name, tensor] : t) {
           if (name.starts_with(kDecoder + "2."))
             tensor = t.at(kDecoder + "1." + name.substr(kDecoder.size() + 2)).clone();
         }
       },
       kDecoder + "2.", "the same numbers"},
      {"SwappedVisionLayers", [](TensorMap& t) { swap_layers(t, kVision, 1, 3); }, kVision + "1",
       "swapped"},
      {"PermutedNeurons",
       [=](TensorMap& t) { permute_rows(t.at(kDecoder + "1.mlp.up_proj.weight")); }, "layers.1.mlp",
       "do not fit each other"},
      {"SwappedMatrices",
       [](TensorMap& t) {
         std::swap(t.at(kDecoder + "1.self_attn.o_proj.weight"),
                   t.at(kDecoder + "2.self_attn.o_proj.weight"));
       },
       "self_attn.o_proj.weight", "do not fit each other"},
  };
  return all;
}

INSTANTIATE_TEST_SUITE_P(Quickstart, BaseFault, ::testing::ValuesIn(faults()),
                         [](const auto& info) { return std::string(info.param.label); });

TEST(Base, EveryPairOfSwappedDecoderLayersIsNamed) {
  const test::TempDir scratch;
  for (int a = 0; a < 4; ++a) {
    for (int b = a + 1; b < 4; ++b) {
      const std::string dir = scratch.file(std::to_string(a) + std::to_string(b));
      const BaseReport report =
          inspect_base(quickstart_copy(dir, [&](TensorMap& t) { swap_layers(t, kDecoder, a, b); }));
      ASSERT_EQ(report.suspicions.size(), 1u) << ::testing::PrintToString(base_lines(report));
      EXPECT_EQ(report.suspicions.front().name,
                kDecoder + std::to_string(a) + " and " + kDecoder + std::to_string(b));
    }
  }
}

TEST(Base, EveryTransposedSquareMatrixIsNamed) {
  const test::TempDir scratch;
  int copies = 0;
  for (const std::string& layers : {kDecoder, kVision}) {
    for (int layer = 0; layer < 4; ++layer) {
      const std::string out = layers == kDecoder ? "o_proj" : "out_proj";
      for (const std::string& module : {std::string("q_proj"), std::string("v_proj"), out}) {
        const std::string name =
            layers + std::to_string(layer) + ".self_attn." + module + ".weight";
        const BaseReport report = inspect_base(quickstart_copy(
            scratch.file(std::to_string(++copies)), [&](TensorMap& t) { transpose(t.at(name)); }));
        ASSERT_FALSE(report.suspicions.empty()) << name;
        EXPECT_EQ(report.suspicions.front().name, name);
        EXPECT_EQ(report.suspicions.front().what, "looks transposed");
      }
    }
  }
}

TEST(Base, TheQuickstartIsSoundInEveryType) {
  const test::TempDir scratch;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const BaseReport report =
        inspect_base(quickstart_copy(scratch.file(at::toString(type)), [&](TensorMap& tensors) {
          for (auto& [name, tensor] : tensors) tensor = tensor.to(type);
        }));
    EXPECT_TRUE(report.suspicions.empty()) << ::testing::PrintToString(base_lines(report));
    EXPECT_TRUE(report.not_judged.empty()) << ::testing::PrintToString(report.not_judged);
    EXPECT_GT(report.values, 2'500'000);
  }
}

/// Small channels of v with large ones of o are a property of one layer: matrices of
/// different layers are unrelated. The same is true of outliers, which an
/// initialisation does not have.
TEST(Base, WhatTrainingAloneLeavesIsNotOdd) {
  const test::TempDir scratch;
  const std::string layer = kDecoder + "2.self_attn.";
  const BaseReport opposed = inspect_base(quickstart_copy(scratch.file("opposed"), [&](auto& t) {
    at::Tensor& v = t.at(layer + "v_proj.weight");
    const at::Tensor o = t.at(layer + "o_proj.weight").to(at::kFloat).norm(2, 0);
    ASSERT_EQ(o.size(0), v.size(0));
    v = v.to(at::kFloat) * (o.mean() / o).pow(3).unsqueeze(1);
  }));
  EXPECT_TRUE(opposed.suspicions.empty()) << ::testing::PrintToString(base_lines(opposed));
  const std::string up = kDecoder + "3.mlp.up_proj.weight";
  const auto random_up = [&](int64_t outliers) {
    const BaseReport report =
        inspect_base(quickstart_copy(scratch.file(std::to_string(outliers)), [&](auto& t) {
          at::Tensor x = normal(t.at(up).sizes(), 5);
          const int64_t step = x.numel() / 64;
          for (int64_t i = 0; i < outliers; ++i) x.view(-1)[i * step + i].mul_(12);
          t.at(up) = x;
        }));
    return std::ranges::any_of(report.suspicions, [&](const train::Suspicion& one) {
      return one.name == up && one.what == kLooksRandom;
    });
  };
  EXPECT_TRUE(random_up(0));
  EXPECT_FALSE(random_up(60));
}

/// A random model with another shape than the tiny one.
struct Shape {
  int64_t hidden = 32, layers = 2, heads = 4, kv_heads = 2, vocab = 64, vision_hidden = 24,
          vision_layers = 3;
  bool tied = false;
};

std::string write_shape(const std::string& dir, const Shape& shape, uint64_t seed) {
  nlohmann::json config = test::TinyLlava{.tied = shape.tied, .vocab = shape.vocab}.config();
  nlohmann::json &text = config["text_config"], &vision = config["vision_config"];
  config["tie_word_embeddings"] = text["tie_word_embeddings"] = shape.tied;
  text["tie_word_embeddings"] = shape.tied;
  text["hidden_size"] = shape.hidden;
  text["intermediate_size"] = shape.hidden * 5 / 2;
  text["num_hidden_layers"] = shape.layers;
  text["num_attention_heads"] = shape.heads;
  text["num_key_value_heads"] = shape.kv_heads;
  vision["hidden_size"] = shape.vision_hidden;
  vision["intermediate_size"] = shape.vision_hidden * 2;
  vision["num_hidden_layers"] = shape.vision_layers;
  io::make_dirs(dir);
  io::write_file_atomic(dir + "/config.json", config.dump(2));
  TensorMap tensors;
  for (const family::TensorSpec& spec : test::tensors_of(llava::parse_llava(config, "shape")))
    tensors.emplace(spec.name, at::zeros(spec.shape));
  initialise(tensors, "", seed * 1000);
  write_tensor_file(dir + "/model.safetensors", tensors);
  return dir;
}

TEST(Base, NothingIsOddInFreshModelsOfManyShapes) {
  const std::vector<Shape> shapes = {
      {},
      {.layers = 1},
      {.layers = 1, .vision_layers = 1},
      {.hidden = 64, .layers = 3, .heads = 4, .kv_heads = 4},
      {.hidden = 64, .layers = 4, .heads = 8, .kv_heads = 2, .vocab = 256, .tied = true},
      {.hidden = 96, .layers = 6, .heads = 6, .kv_heads = 6, .vocab = 512},
      {.hidden = 128, .layers = 2, .heads = 4, .kv_heads = 1, .vocab = 1000, .vision_layers = 6},
      {.hidden = 192, .layers = 12, .heads = 6, .kv_heads = 3, .vocab = 400, .vision_hidden = 64},
      {.hidden = 640, .layers = 2, .heads = 10, .kv_heads = 5, .vocab = 3000, .vision_hidden = 96}};
  const test::TempDir scratch;
  int models = 0;
  for (const Shape& shape : shapes) {
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      const BaseReport report =
          inspect_base(write_shape(scratch.file(std::to_string(++models)), shape, seed));
      EXPECT_TRUE(report.suspicions.empty())
          << models << ::testing::PrintToString(base_lines(report));
      EXPECT_FALSE(report.not_judged.empty());
    }
  }
  EXPECT_GE(models, 20);
}

TEST(Base, NothingIsOddInTinyModelsOfAnySeedOrType) {
  const test::TempDir scratch;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    for (const io::DType type : {io::DType::kF32, io::DType::kF16, io::DType::kBF16}) {
      const std::string dir = scratch.file(std::to_string(seed) + io::dtype_name(type));
      const BaseReport report = inspect_base(test::write_tiny_llava(
          dir,
          {.seed = seed, .dtype = type, .tied = seed % 2 == 0, .spread = seed < 5 ? 0.15 : 0.02}));
      EXPECT_TRUE(report.suspicions.empty()) << ::testing::PrintToString(base_lines(report));
    }
  }
}

TEST(Base, FaultsOfATinyModelAreNamed) {
  const test::TempDir scratch;
  const std::string down = kDecoder + "1.mlp.down_proj.weight";
  const auto first_of = [&](const std::string& label,
                            const std::function<void(test::StoredTensors&)>& change) {
    const BaseReport report = inspect_base(test::write_tiny_llava(scratch.file(label), {}, change));
    return report.suspicions.empty() ? "nothing" : report.suspicions.front().name;
  };
  EXPECT_EQ(first_of("scaled",
                     [&](test::StoredTensors& tensors) {
                       tensors[down] =
                           test::random_tensor(tensors[down].shape, io::DType::kF32, 1, 0, 1500);
                     }),
            down);
  EXPECT_EQ(first_of("zeros",
                     [&](test::StoredTensors& tensors) {
                       tensors[down].bytes.assign(tensors[down].bytes.size(), '\0');
                     }),
            down);
  EXPECT_EQ(first_of("row",
                     [&](test::StoredTensors& tensors) {
                       tensors[down].bytes.replace(0, 48 * 4, 48 * 4, '\0');
                     }),
            down);
  EXPECT_EQ(first_of("nan",
                     [&](test::StoredTensors& tensors) {
                       tensors[down].bytes.replace(400, 4, 4, '\xff');
                     }),
            down);
}

/// Typical user models: decoder adapters merged into a random model, and a fully trained model.
TEST(Base, NothingIsOddAfterALittleTraining) {
  test::TinyRun run;
  recipe::Recipe recipe = run.recipe("out");
  recipe.data.eval.clear();
  recipe.train.max_steps = 20;
  recipe.optim.lr = 1e-2;
  ASSERT_EQ(train::train(recipe), 0);
  const std::string merged = run.dir().file("merged");
  hf::merge_to_dir(run.model(), run.dir().file("out/adapter"), merged);
  for (const std::string& model : {run.model(), merged}) {
    const BaseReport report = inspect_base(model);
    EXPECT_TRUE(report.suspicions.empty()) << ::testing::PrintToString(base_lines(report));
  }
}

/// Messages of `lft check` and `lft train` if the first loss exceeds the uniform-guess loss.
TEST(Base, AFirstLossAboveGuessingNamesHeadAndLayers) {
  const test::TempDir scratch;
  const std::string head = "language_model.lm_head.weight";
  const auto tried = [&](const std::string& label, const Change& change) {
    const std::string digits = LFT_SOURCE_DIR "/recipes/quickstart/digits/";
    train::Run run = make_run(open_inputs(recipe::read_recipe(
        LFT_SOURCE_DIR "/recipes/quickstart.yaml",
        {"model.path=" + quickstart_copy(scratch.file(label), change),
         "data.train=" + digits + "train.json", "data.image_root=" + digits + "images",
         "data.eval=null", "output_dir=" + scratch.file("out"), "train.batch_size=2"})));
    const FirstLoss first = measure_first_loss(run.model.model, run.probe, /*loss=*/9);
    EXPECT_TRUE(first.above_guessing());
    return join(try_suspects(run.model.model, run.probe, run, first), "\n");
  };
  EXPECT_NE(tried("healthy", nullptr).find("nothing looks odd in the base's own weights"),
            std::string::npos);
  const std::string permuted =
      tried("head", [&](TensorMap& tensors) { permute_rows(tensors.at(head)); });
  EXPECT_NE(permuted.find("the base looks odd: " + head + ": its rows do not belong to the tokens"),
            std::string::npos)
      << permuted;
  const std::string swapped =
      tried("layers", [](TensorMap& tensors) { swap_layers(tensors, kDecoder, 1, 3); });
  EXPECT_NE(swapped.find(kDecoder + "1 and " + kDecoder + "3: look swapped"), std::string::npos)
      << swapped;
}

TEST(Base, NoModelIsRefused) {
  const test::TempDir scratch;
  EXPECT_LFT_ERROR(ErrorKind::kInput, "the model directory does not exist",
                   inspect_base(scratch.file("nowhere")));
}

}  // namespace
}  // namespace lft::base_test
