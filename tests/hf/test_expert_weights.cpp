// Checkpoints of mixtures of experts in both layouts and in every storage, and faulty ones.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <barrier>
#include <thread>

#include "hf/expert_logits.h"
#include "models/ops/core/precision.h"
#include "models/shard_pool.h"

namespace lft::expert_weights_test {
using namespace lft::test;
namespace {

using ops::BaseStorage;

/// The loads of several ranks in threads, which add the numbers of all.
class RankMemory : public PooledMemory {
 public:
  struct Sums {
    std::barrier<> barrier;
    std::vector<std::vector<uint64_t>> all;
  };
  RankMemory(ShardPool& pool, int64_t own, Sums& sums)
      : PooledMemory(pool, own), own_(own), sums_(sums) {}
  std::vector<uint64_t> sum(const std::vector<uint64_t>& own) override {
    sums_.all[static_cast<size_t>(own_)] = own;
    sums_.barrier.arrive_and_wait();
    std::vector<uint64_t> total(own.size(), 0);
    for (const std::vector<uint64_t>& part : sums_.all) {
      for (size_t i = 0; i < total.size(); ++i) total[i] += part[i];
    }
    return total;
  }

 private:
  const int64_t own_;
  Sums& sums_;
};

struct Loaded {
  Model model = nullptr;
  std::string digest;
};

Loaded load(const std::string& dir, at::ScalarType dtype, const BaseForm& base) {
  Loaded loaded;
  loaded.model = load_model(ModelDir::open(dir), dtype, at::kCPU, true, base, &loaded.digest);
  return loaded;
}

std::vector<Loaded> load_sharded(const std::string& dir, at::ScalarType dtype, BaseStorage storage,
                                 ShardPool& pool, size_t ranks) {
  pool.parts.resize(ranks);
  RankMemory::Sums sums{std::barrier<>(static_cast<std::ptrdiff_t>(ranks)), {}};
  sums.all.resize(ranks);
  std::vector<Loaded> loaded(ranks);
  {
    std::vector<std::jthread> threads;
    for (size_t rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        const auto own = static_cast<int64_t>(rank);
        loaded[rank] =
            load(dir, dtype,
                 {.storage = storage, .shards = std::make_shared<RankMemory>(pool, own, sums)});
      });
    }
  }
  return loaded;
}

struct Case {
  const char* model_type;
  DType stored;
  at::ScalarType held;
  const char* name;
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

class ExpertWeights : public ::testing::TestWithParam<Case> {
 protected:
  std::string write(const std::string& name, bool transposed) {
    return write_experts(temp_.file(name), config_,
                         expert_tensors_of(config_, GetParam().stored, transposed));
  }
  std::vector<bool> layouts() const {
    return GetParam().model_type == std::string("qwen3_vl_moe") ? std::vector<bool>{false, true}
                                                                : std::vector<bool>{false};
  }
  const nlohmann::json config_ = expert_config(GetParam().model_type);
  TempDir temp_;
};

/// In memory, in files and in the slices of two and three ranks, dense and quantized: the same
/// logits, and one digest for each file.
TEST_P(ExpertWeights, AreTheSameInEveryLayoutAndStorage) {
  const at::ScalarType dtype = GetParam().held;
  std::map<BaseStorage, at::Tensor> want;
  for (const bool transposed : layouts()) {
    const std::string dir = write(transposed ? "transposed" : "plain", transposed);
    std::string digest;
    for (const BaseStorage storage : {BaseStorage::kDense, BaseStorage::kNf4, BaseStorage::kFp8}) {
      SCOPED_TRACE(static_cast<int>(storage));
      Loaded here = load(dir, dtype, {.storage = storage});
      const at::Tensor logits = text_logits(here.model);
      EXPECT_TRUE(logits.isfinite().all().item<bool>());
      if (!want.contains(storage)) want[storage] = logits;
      EXPECT_TRUE(logits.equal(want[storage]));
      if (digest.empty()) digest = here.digest;
      EXPECT_EQ(here.digest, digest);
      for (const size_t ranks : {2u, 3u}) {
        ShardPool pool;
        for (Loaded& sharded : load_sharded(dir, dtype, storage, pool, ranks)) {
          EXPECT_TRUE(text_logits(sharded.model).equal(want[storage])) << ranks;
          EXPECT_EQ(sharded.digest, digest) << ranks;
        }
      }
    }
    const auto files = std::make_shared<const ModelDir>(ModelDir::open(dir));
    Model in_files = load_model(*files, dtype, at::kCPU, true, {.in_files = files});
    EXPECT_TRUE(text_logits(in_files).equal(want[BaseStorage::kDense]));
  }
  EXPECT_FALSE(want[BaseStorage::kNf4].equal(want[BaseStorage::kDense]));
  EXPECT_FALSE(want[BaseStorage::kFp8].equal(want[BaseStorage::kNf4]));
}

INSTANTIATE_TEST_SUITE_P(
    Of, ExpertWeights,
    ::testing::Values(Case{"qwen3_vl_moe", DType::kF32, at::kFloat, "vl_fp32"},
                      Case{"qwen3_vl_moe", DType::kBF16, at::kBFloat16, "vl_bf16"},
                      Case{"qwen3_vl_moe", DType::kBF16, at::kHalf, "vl_bf16_as_fp16"},
                      Case{"qwen3_vl_moe", DType::kF16, at::kFloat, "vl_fp16_as_fp32"},
                      Case{"qwen3_5_moe", DType::kBF16, at::kBFloat16, "v35_bf16"},
                      Case{"qwen3_5_moe", DType::kF32, at::kHalf, "v35_fp32_as_fp16"}),
    [](const auto& info) { return info.param.name; });

constexpr const char* kGateUp = "model.language_model.layers.2.mlp.experts.gate_up_proj";
constexpr const char* kDown = "model.language_model.layers.0.mlp.experts.down_proj";

class FaultyExperts : public ::testing::Test {
 protected:
  /// A qwen3_vl_moe in BF16.
  std::string write(bool transposed, const std::function<void(StoredTensors&)>& change,
                    const std::string& model_type = "qwen3_vl_moe") {
    const nlohmann::json config = expert_config(model_type);
    StoredTensors tensors = expert_tensors_of(config, DType::kBF16, transposed);
    change(tensors);
    return write_experts(temp_.file("m" + std::to_string(++number_)), config, tensors);
  }
  TempDir temp_;
  int number_ = 0;
};

TEST_F(FaultyExperts, OtherShapesAreRefusedByName) {
  const auto refuses = [&](const std::vector<int64_t>& shape, const std::string& model_type,
                           const std::string& piece) {
    const std::string dir = write(
        false,
        [&](StoredTensors& tensors) {
          ASSERT_TRUE(tensors.contains(kGateUp));
          tensors[kGateUp] = random_tensor(shape, DType::kBF16, 1, 0, 1);
        },
        model_type);
    EXPECT_LFT_ERROR(ErrorKind::kInput, piece, ModelDir::open(dir));
  };
  const std::string expected = std::string(kGateUp) + ": found ", want = ", expected [8, 96, 32]";
  refuses({9, 96, 32}, "qwen3_vl_moe", expected + "[9, 96, 32]" + want);
  refuses({7, 32, 96}, "qwen3_vl_moe", expected + "[7, 32, 96]" + want);
  refuses({768, 32}, "qwen3_vl_moe", expected + "[768, 32]" + want);
  refuses({8, 48, 32}, "qwen3_vl_moe", expected + "[8, 48, 32]" + want);
  refuses({96, 32, 8}, "qwen3_vl_moe", expected + "[96, 32, 8]" + want);
  refuses({8, 96 * 32}, "qwen3_vl_moe", expected + "[8, 3072]" + want);
  refuses({8, 32, 96}, "qwen3_5_moe", expected + "[8, 32, 96]" + want);
  const std::string without = write(false, [](StoredTensors& tensors) { tensors.erase(kDown); });
  EXPECT_LFT_ERROR(ErrorKind::kInput, "down_proj.weight [8, 32, 48]", ModelDir::open(without));
}

/// The flat index is that in the tensor of all experts, however they are held.
TEST_F(FaultyExperts, AWeightThatIsNotFiniteIsNamedByItsIndexInTheFile) {
  constexpr int64_t kIndex = 5 * 96 * 32 + 77;  // in the sixth expert
  for (const bool transposed : {false, true}) {
    const std::string dir = write(transposed, [](StoredTensors& tensors) {
      for (const int64_t index : {kIndex, kIndex + 2000, int64_t{7 * 96 * 32}})
        tensors[kGateUp].bytes.replace(static_cast<size_t>(index) * 2, 2, "\xff\xff");
    });
    const std::string piece = "nan at flat index " + std::to_string(kIndex) + " of [8, ";
    for (const BaseStorage storage : {BaseStorage::kDense, BaseStorage::kNf4, BaseStorage::kFp8})
      EXPECT_LFT_ERROR(ErrorKind::kInput, piece, load(dir, at::kBFloat16, {.storage = storage}));
    const auto files = std::make_shared<const ModelDir>(ModelDir::open(dir));
    Model in_files = load_model(*files, at::kBFloat16, at::kCPU, true, {.in_files = files});
    EXPECT_LFT_ERROR(ErrorKind::kInput, piece, text_logits(in_files));
    ShardPool pool;
    pool.parts.resize(1);
    EXPECT_LFT_ERROR(ErrorKind::kInput, piece,
                     load(dir, at::kBFloat16, {.shards = std::make_shared<PooledMemory>(pool, 0)}));
  }
}

TEST_F(FaultyExperts, AWeightBeyondFp16IsNamedByItsIndexInTheFile) {
  constexpr int64_t kIndex = 3 * 32 * 48 + 40;
  for (const bool transposed : {false, true}) {
    const std::string dir = write(transposed, [](StoredTensors& tensors) {
      tensors[kDown].bytes.replace(kIndex * 2, 2, element_bytes(1e5f, DType::kBF16));
    });
    const std::string piece = "BF16 at flat index " + std::to_string(kIndex);
    EXPECT_NO_THROW(load(dir, at::kBFloat16, {}));
    EXPECT_LFT_ERROR(ErrorKind::kInput, piece, load(dir, at::kHalf, {}));
    ShardPool pool;
    pool.parts.resize(1);
    EXPECT_LFT_ERROR(ErrorKind::kInput, piece,
                     load(dir, at::kHalf, {.shards = std::make_shared<PooledMemory>(pool, 0)}));
  }
}

}  // namespace
}  // namespace lft::expert_weights_test
