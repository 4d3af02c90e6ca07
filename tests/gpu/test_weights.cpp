// Weights through the ring of host buffers onto a device: the same bits as conversion on the CPU,
// also when buffers are reused.
#include <cstring>
#include <deque>

#include "gpu/devices.h"
#include "src/hf/fill_weights.h"
#include "src/hf/model_dir.h"
#include "src/hf/weights.h"
#include "src/hf/weights_load.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"
#include "support/tiny_llava.h"

namespace lft::weights_test {
using namespace lft::hf;
using namespace lft::io;
using namespace lft::family;
using namespace lft::llava;
namespace {

using namespace test;

class Weights : public OnDevice {
 protected:
  void add(const std::string& name, const at::Tensor& values, at::ScalarType target) {
    const std::string path = temp_.file("file" + std::to_string(files_.size()));
    const auto* bytes = static_cast<const char*>(values.const_data_ptr());
    write_safetensors(path, {{name,
                              {to_dtype(values.scalar_type()), values.sizes().vec(),
                               std::string(bytes, values.nbytes())}}});
    files_.emplace_back(path);
    jobs_.push_back(
        {&files_.back(), &files_.back().info(name), name,
         at::empty(values.sizes(), at::TensorOptions().dtype(target).device(device()))});
  }
  /// Small pieces, so that every buffer is reused thousands of times.
  void fill() { fill_weights(jobs_, {.piece_bytes = 4096, .threads = 4, .through_ring = true}); }

  TempDir temp_;
  std::deque<SafetensorsFile> files_;
  std::vector<WeightJob> jobs_;
};

TEST_P(Weights, HaveTheBitsOfAConversionOnTheCpu) {
  std::vector<at::Tensor> expected;
  for (const at::ScalarType stored : kTypes) {
    for (const at::ScalarType target : kTypes) {
      const at::Tensor values = (normal({1001, 1003}, expected.size()) * 100).to(stored);
      add("t" + std::to_string(expected.size()), values, target);
      expected.push_back(values.to(target));
    }
  }
  fill();
  for (size_t i = 0; i < expected.size(); ++i) {
    const at::Tensor got = jobs_[i].target.cpu();
    EXPECT_EQ(std::memcmp(got.const_data_ptr(), expected[i].const_data_ptr(), got.nbytes()), 0)
        << jobs_[i].name;
  }
}

TEST_P(Weights, ThatAreNotAllowedAreNamed) {
  for (const at::ScalarType stored : kTypes) {
    for (const int64_t index :
         {int64_t{0}, 4096 / static_cast<int64_t>(c10::elementSize(stored)) - 1,
          int64_t{299'999}}) {
      jobs_.clear();
      at::Tensor values = at::ones({300'000}, stored);
      values[index] = -INFINITY;
      add("good", at::ones({300'000}, stored), at::kBFloat16);
      add("bad", values, at::kHalf);
      EXPECT_LFT_ERROR(ErrorKind::kInput,
                       "-inf at flat index " + std::to_string(index) + " of [300000]", fill());
      values[index] = 1;
      values[299'998] = NAN;
      add("worse", values, stored);
      std::swap(jobs_[1], jobs_[2]);
      EXPECT_LFT_ERROR(ErrorKind::kInput, "nan at flat index 299998 of [300000]", fill());
    }
  }
  jobs_.clear();
  at::Tensor values = at::ones({5000});
  values[4321] = 65520;
  add("large", values, at::kHalf);
  EXPECT_LFT_ERROR(ErrorKind::kInput, "F32 at flat index 4321", fill());
}

/// Stored like LLaVA-1.5: no product under BF16 casts a weight.
TEST_P(Weights, OfAnFp16CheckpointAreHeldInBf16UnderBf16) {
  const std::string path = write_tiny_llava(temp_.file("half"), {.dtype = DType::kF16});
  const ModelDir dir = ModelDir::open(path);
  Model stored = load_model(dir, at::kHalf, at::kCPU);
  Model held =
      load_model(dir, choose_base_dtype(dir, "auto", at::kBFloat16, device(), nullptr), device());
  const auto left = model_parameters(*stored), right = model_parameters(*held);
  ASSERT_EQ(left.size(), right.size());
  for (const auto& [name, tensor] : left) {
    EXPECT_EQ(right.at(name).scalar_type(), at::kBFloat16) << name;
    EXPECT_TRUE(right.at(name).cpu().equal(tensor.to(at::kBFloat16))) << name;
  }
  const at::ScalarType kept = choose_base_dtype(dir, "auto", at::kHalf, device(), nullptr);
  EXPECT_EQ(kept, on_gpu() ? at::kHalf : at::kBFloat16);
}

LFT_ON_EACH_DEVICE(Weights);

}  // namespace
}  // namespace lft::weights_test
