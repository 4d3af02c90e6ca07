// A base stored in BF16 or FP16 and computed in float32, as after a recovery: weights are widened one at a time, in both passes, and no
// widened copy stays. Measured in bytes that LibTorch holds on the CPU.
#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "models/layers/call.h"
#include "models/lora/inject.h"
#include "models/ops/precision.h"
#include "models/tiny.h"

namespace lft::test {
namespace {

std::atomic<int64_t> live_bytes{0}, peak_bytes{0};

/// Counts what is live of what LibTorch asks for while it is installed. The size of a block lies in front of it.
class CountingAllocator : public c10::Allocator {
 public:
  CountingAllocator() : inner_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(this, /*priority=*/1); }
  ~CountingAllocator() override { c10::SetCPUAllocator(inner_, /*priority=*/1); }

  c10::DataPtr allocate(size_t bytes) override {
    char* const block = static_cast<char*>(std::aligned_alloc(kHeader, (bytes + 2 * kHeader - 1) / kHeader * kHeader));
    std::memcpy(block, &bytes, sizeof bytes);
    const int64_t live = live_bytes += static_cast<int64_t>(bytes);
    for (int64_t peak = peak_bytes; live > peak && !peak_bytes.compare_exchange_weak(peak, live);) {
    }
    return {block + kHeader, block + kHeader, &release, at::Device(at::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  static constexpr size_t kHeader = 64;
  static void release(void* pointer) {
    char* const block = static_cast<char*>(pointer) - kHeader;
    size_t bytes = 0;
    std::memcpy(&bytes, block, sizeof bytes);
    live_bytes -= static_cast<int64_t>(bytes);
    std::free(block);
  }
  c10::Allocator* inner_;
};

/// Weights that dwarf the activations: layers of 4.7 million, a head of 5 slices.
LlavaConfig wide_config() {
  Json json = tiny_json();
  json["text_config"].update({{"hidden_size", 768}, {"intermediate_size", 2048}, {"num_hidden_layers", 3}, {"vocab_size", 20000}});
  return LlavaConfig::parse(json, "wide");
}

struct Measured {
  int64_t passes = 0;   // the most that was live during forward and backward beyond the model
  int64_t left = 0;     // what is still live after
  int64_t between = 0;  // what the graph keeps between the passes
};

Measured measure(at::ScalarType stored) {
  at::manual_seed(1);
  Llava model(wide_config(), stored, at::kCPU);
  {
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : model->parameters()) parameter.normal_(0, 0.02);
  }
  inject_lora(select_sites(linear_sites(*model), {"llm:all-linear"}), {.variant = "lora", .rank = 2, .alpha = 4, .dropout = 0}, 1);
  make_trainable(*model, {});
  const LlavaBatch batch = tiny_batch(wide_config());
  const int64_t before = live_bytes;
  peak_bytes = before;
  Measured measured;
  {
    const at::Tensor loss = model->loss_sum(batch);
    measured.between = live_bytes - before;
    loss.backward();
    EXPECT_TRUE(at::isfinite(loss).item<bool>());
  }
  measured.passes = peak_bytes - before;
  for (at::Tensor& parameter : model->parameters()) parameter.mutable_grad() = at::Tensor();
  measured.left = live_bytes - before;
  return measured;
}

TEST(Widening, HoldsOneWidenedWeightAtATimeAndKeepsNone) {
  const CountingAllocator counting;
  const Measured wide = measure(at::kFloat);  // nothing to widen: activations, and the graph
  const int64_t largest = 4 * 768 * 2048, slice = 4 * 4096 * 768;
  static_assert(4 * 4096 * 768 > 4 * 768 * 2048);
  for (const at::ScalarType stored : {at::kBFloat16, at::kHalf}) {
    const Measured half = measure(stored);
    // One weight, or one slice of the head, in float32; and a little for norms' weights.
    EXPECT_LE(half.passes, wide.passes + std::max(largest, slice) + (64 << 10)) << stored;
    EXPECT_GE(half.passes, largest) << "a weight has to be widened at some time";
    EXPECT_LE(half.between, wide.between + (64 << 10)) << "the graph keeps no widened weight";
    EXPECT_LE(half.left, wide.left + (64 << 10)) << stored;
  }
}

}  // namespace
}  // namespace lft::test
