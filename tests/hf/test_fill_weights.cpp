#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <deque>

#include "hf/support.h"
#include "src/hf/fill_weights.h"
#include "src/hf/model_dir.h"
#include "src/hf/weights_load.h"
#include "support/counting_allocator.h"

namespace lft::fill_weights_test {
using namespace lft::hf;
using namespace lft::io;
namespace {

using namespace test;

struct Way {
  const char* name;
  bool through_ring;
  unsigned threads;
};

/// Every test runs for both ways to fill a tensor, the device path with its tensors on the CPU.
class FillWeights : public ::testing::TestWithParam<Way> {
 protected:
  /// Adds a file's tensors to the jobs, in the order of their names.
  void add(const StoredTensors& tensors, at::ScalarType target) {
    const std::string path = temp_.file("shard" + std::to_string(files_.size()) + ".safetensors");
    write_safetensors(path, tensors);
    files_.emplace_back(path);
    for (const auto& [name, info] : files_.back().tensors()) {
      jobs_.push_back(
          {&files_.back(), &info, name, at::empty(info.shape, at::TensorOptions(target))});
    }
  }
  FillOptions options(int64_t piece_bytes = 4096) const {
    return {.piece_bytes = piece_bytes,
            .threads = GetParam().threads,
            .through_ring = GetParam().through_ring};
  }
  const at::Tensor& target(const std::string& name) const {
    for (const WeightJob& job : jobs_) {
      if (job.name == name) return job.target;
    }
    throw std::out_of_range(name);
  }
  void expect_refused(const std::string& piece) {
    EXPECT_LFT_ERROR(ErrorKind::kInput, piece, fill_weights(jobs_, options()));
  }

  TempDir temp_;
  std::deque<SafetensorsFile> files_;
  std::vector<WeightJob> jobs_;
};

StoredTensor stored_from(const at::Tensor& values) {
  const auto* bytes = static_cast<const char*>(values.const_data_ptr());
  return {to_dtype(values.scalar_type()), values.sizes().vec(),
          std::string(bytes, values.nbytes())};
}

StoredTensor ones(int64_t count, DType dtype) {
  std::string bytes;
  for (int64_t i = 0; i < count; ++i) bytes += element_bytes(1.0f, dtype);
  return {dtype, {count}, bytes};
}

void set(StoredTensor& tensor, int64_t index, float value) {
  const std::string bytes = element_bytes(value, tensor.dtype);
  tensor.bytes.replace(index * bytes.size(), bytes.size(), bytes);
}

void set_nan(StoredTensor& tensor, int64_t index) {
  tensor.bytes.replace(index * dtype_size(tensor.dtype), dtype_size(tensor.dtype),
                       "\xff\xff\xff\xff", dtype_size(tensor.dtype));
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() &&
         (a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0);
}

TEST_P(FillWeights, EveryByteArrivesWhereverPiecesEnd) {
  std::map<std::string, std::string> expected;
  uint64_t seed = 0;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const int64_t piece = 4096 / dtype_size(dtype);
    for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{},
                                                                               {0},
                                                                               {3, 0, 2},
                                                                               {1},
                                                                               {piece - 1},
                                                                               {piece},
                                                                               {piece + 1},
                                                                               {2, piece},
                                                                               {3, piece + 5},
                                                                               {7, 11, 13}}) {
      const std::string name = "t" + std::to_string(++seed);
      const StoredTensor tensor = random_tensor(shape, dtype, seed, 0, 1);
      expected[name] = tensor.bytes;
      add({{name, tensor}}, to_scalar_type(dtype));  // one file each
    }
  }
  fill_weights(jobs_, options());
  for (const auto& [name, bytes] : expected) {
    ASSERT_EQ(target(name).nbytes(), bytes.size()) << name;
    EXPECT_TRUE(bytes.empty() ||
                std::memcmp(target(name).const_data_ptr(), bytes.data(), bytes.size()) == 0)
        << name;
  }
}

TEST_P(FillWeights, APieceOfSeveralBlocks) {
  const at::Tensor values = at::arange(1'000'003, at::TensorOptions(at::kFloat));
  add({{"a", stored_from(values)}, {"b", stored_from(values.to(at::kBFloat16))}}, at::kFloat);
  fill_weights(jobs_, options(3 << 19));
  EXPECT_TRUE(target("a").equal(values));
  EXPECT_TRUE(target("b").equal(values.to(at::kBFloat16).to(at::kFloat)));
}

TEST_P(FillWeights, ConvertsEveryPatternAsTorchConvertsTheWhole) {
  const at::Tensor bits = at::arange(1 << 16, at::TensorOptions(at::kInt)).to(at::kShort);
  const at::Tensor wide =
      at::randint(INT32_MIN, INT32_MAX, {1 << 18}, at::TensorOptions(at::kInt)).view(at::kFloat);
  std::map<std::string, at::Tensor> sources = {
      {"bf16", bits.view(at::kBFloat16)}, {"f16", bits.view(at::kHalf)}, {"f32", wide}};
  for (auto& [name, source] : sources) source = source.masked_select(source.isnan().logical_not());
  for (const at::ScalarType to : {at::kFloat, at::kBFloat16, at::kHalf}) {
    StoredTensors stored;
    for (const auto& [name, source] : sources) stored[name] = stored_from(source);
    jobs_.clear();
    add(stored, to);
    FillOptions unchecked = options();
    unchecked.check_finite = false;
    fill_weights(jobs_, unchecked);
    for (const auto& [name, source] : sources)
      EXPECT_TRUE(same_bits(target(name), source.to(to))) << name << " to " << to;
  }
}

TEST_P(FillWeights, ANonFiniteWeightIsNamedWhereverItLies) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const int64_t piece = 4096 / dtype_size(dtype);
    for (const int64_t index : {int64_t{0}, piece - 1, piece, 2 * piece - 1, 3 * piece + 6}) {
      for (const at::ScalarType to : {at::kFloat, at::kBFloat16, at::kHalf}) {
        jobs_.clear();
        StoredTensor bad = ones(3 * piece + 7, dtype);
        set_nan(bad, index);
        add({{"a", ones(5, dtype)}, {"b", bad}, {"c", bad}}, to);
        expect_refused("nan at flat index " + std::to_string(index) + " of [" +
                       std::to_string(3 * piece + 7) + "]");
        expect_refused(files_.back().path() + ": b");
      }
    }
  }
}

TEST_P(FillWeights, AnInfinityIsNamedWithItsSign) {
  for (const auto& [value, text] : std::map<float, std::string>{
           {INFINITY, "inf at flat index 1024"}, {-INFINITY, "-inf at flat index 1024"}}) {
    jobs_.clear();
    StoredTensor bad = ones(2000, DType::kF32);
    set(bad, 1024, value);
    set(bad, 1999, NAN);
    add({{"a", bad}}, at::kFloat);
    expect_refused("found: " + text);
    FillOptions unchecked = options();
    unchecked.check_finite = false;
    fill_weights(jobs_, unchecked);
    EXPECT_EQ(target("a")[1024].item<float>(), value);
  }
}

TEST_P(FillWeights, AWeightBeyondF16IsNamedUnlessAnotherIsNotFiniteAtAll) {
  for (const float value :
       {65520.0f,
        -1e30f}) {  // half of F16's last step above its largest: the first that rounds to infinity
    jobs_.clear();
    StoredTensor large = ones(3000, DType::kF32);
    set(large, 1023, 65519.0f);
    set(large, 1024, value);
    add({{"a", ones(1, DType::kF32)}, {"b", large}}, at::kHalf);
    expect_refused("a weight does not fit fp16");
    expect_refused("F32 at flat index 1024");
    set_nan(large, 2999);
    add({{"aa", large}}, at::kHalf);
    std::swap(jobs_[1], jobs_[2]);
    expect_refused("nan at flat index 2999 of [3000]");
  }
}

TEST_P(FillWeights, OfSeveralFaultyTensorsTheFirstJobIsNamed) {
  StoredTensors tensors;
  for (int i = 0; i < 40; ++i) {
    StoredTensor& tensor = tensors["t" + std::to_string(10 + i)] = ones(5000, DType::kBF16);
    if (i % 2 == 1) set_nan(tensor, i);
  }
  add(tensors, at::kBFloat16);
  for (int repeat = 0; repeat < 20; ++repeat) expect_refused("nan at flat index 1 of");
  std::reverse(jobs_.begin(), jobs_.end());  // against the order on disk
  for (int repeat = 0; repeat < 20; ++repeat) expect_refused("nan at flat index 39 of");
}

TEST_P(FillWeights, AFileThatShrankIsAShortReadWithOneMessage) {
  add({{"a", ones(5000, DType::kF32)}, {"b", ones(5000, DType::kF32)}}, at::kFloat);
  const std::string path = files_.back().path();
  const size_t size = read_file(path).size();
  for (const size_t left : {size - 1, size - 4096, size - 25000, size_t{8}}) {
    ASSERT_EQ(truncate(path.c_str(), static_cast<off_t>(left)), 0);
    expect_refused("the file ends early\n  where: " + path + "\n  found: " + std::to_string(left) +
                   " bytes\n  expected: " + std::to_string(size) + " bytes");
  }
}

TEST_P(FillWeights, AFaultThatIsGoneWhenItIsLookedForIsStillOne) {
  StoredTensor bad = ones(5000, DType::kF32);
  set_nan(bad, 4000);
  add({{"a", bad}, {"b", ones(3000, DType::kF32)}}, at::kFloat);
  const std::string path = files_.back().path(), bytes = read_file(path);
  // Restores the file when the second job is done, which is after the first one.
  jobs_[1].take = [&](const at::Tensor&) {
    std::string fixed = bytes;
    fixed.replace(files_.back().info("a").offset + 16000, 4, element_bytes(1.0f, DType::kF32));
    FILE* const file = fopen(path.c_str(), "r+");
    fwrite(fixed.data(), 1, fixed.size(), file);
    fclose(file);
  };
  std::swap(jobs_[0], jobs_[1]);
  FillOptions one_thread = options();
  one_thread.threads = 1;
  EXPECT_LFT_ERROR(ErrorKind::kInput, "changed while it was read", fill_weights(jobs_, one_thread));
}

TEST_P(FillWeights, ATensorToTakeComesWholeAndFinite) {
  const StoredTensor good = random_tensor({3, 1000}, DType::kBF16, 1, 0, 1);
  add({{"a", good}, {"b", ones(9000, DType::kBF16)}, {"c", good}}, at::kFloat);
  std::string taken;
  jobs_[0].take = [&](const at::Tensor& stored) {
    EXPECT_EQ(stored.sizes(), at::IntArrayRef({3, 1000}));
    taken.assign(static_cast<const char*>(stored.const_data_ptr()), stored.nbytes());
  };
  jobs_[0].target = at::Tensor();
  fill_weights(jobs_, options());
  EXPECT_EQ(taken, good.bytes);
  EXPECT_TRUE(target("b").eq(1).all().item<bool>());

  StoredTensor bad = good;
  set_nan(bad, 2999);
  jobs_.clear();
  add({{"a", bad}}, at::kFloat);
  jobs_[0].take = [](const at::Tensor&) {
    FAIL() << "a tensor that is not finite was handed over";
  };
  FillOptions unchecked = options();
  unchecked.check_finite = false;
  EXPECT_LFT_ERROR(ErrorKind::kInput, "nan at flat index 2999 of [3, 1000]",
                   fill_weights(jobs_, unchecked));
}

TEST_P(FillWeights, HoldsTheTargetsAndAFewMiBAThread) {
  const CountingAllocator counting;
  constexpr int64_t kMiB = 1 << 20, kPiece = 2 * kMiB;
  const auto elements = int64_t{8} * kMiB;
  add({{"half",
        stored_from(
            at::arange(elements, at::TensorOptions(at::kFloat)).remainder_(2048).to(at::kHalf))}},
      at::kBFloat16);
  add({{"same",
        stored_from(at::arange(elements, at::TensorOptions(at::kFloat)).to(at::kBFloat16))}},
      at::kBFloat16);
  const int64_t before = CountingAllocator::live();
  CountingAllocator::reset_peak();
  fill_weights(jobs_, options(kPiece));
  // Direct: a quarter MiB as stored, twice that in F32. By the ring: two buffers and the
  // received data, one piece each; plus 8 bytes per piece.
  const int64_t a_thread = GetParam().through_ring ? 3 * kPiece : 3 * kMiB / 4;
  EXPECT_LE(CountingAllocator::peak() - before, GetParam().threads * a_thread + 65536);
}

INSTANTIATE_TEST_SUITE_P(Ways, FillWeights,
                         ::testing::Values(Way{"Straight", false, 1},
                                           Way{"StraightFourThreads", false, 4},
                                           Way{"Ring", true, 1}, Way{"RingFourThreads", true, 4}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lft::fill_weights_test
