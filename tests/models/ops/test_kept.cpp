// Bytes that a decoder layer keeps for its backward pass in BF16 with LoRA on every linear layer:
// the lean plan, in which only norms and products are recomputed.
#include <ATen/core/grad_mode.h>

#include "models/llama/llama.h"
#include "models/lora/inject.h"
#include "models/lora/lora.h"
#include "models/ops/attention/attention.h"
#include "models/ops/core/precision.h"
#include "models/tiny.h"
#include "support/counting_allocator.h"

namespace lft::test::kept_test {
namespace {

constexpr int64_t kTokens = 640;

LlamaConfig small_llama() {
  Json json = tiny_json();
  json["text_config"] =
      Json::parse(R"({"hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 1, )"
                  R"("num_attention_heads": 8,
    "num_key_value_heads": 8, "vocab_size": 64, "max_position_embeddings": 1024})");
  return llava::parse_llava(json, "small").text;
}

LlamaLayer adapted_layer(const LlamaConfig& config, int64_t rank, double dropout) {
  const at::NoGradGuard no_grad;
  const at::TensorOptions options(at::kBFloat16);
  LlamaLayer layer(config, options, options);
  for (auto& item : layer->named_parameters())
    item.value().copy_(fill_by_hash(item.key(), item.value().sizes()));
  for (const auto& module : layer->modules()) {
    const auto linear = std::dynamic_pointer_cast<LinearImpl>(module);
    if (linear == nullptr) continue;
    const LoraOptions lora{.rank = rank, .alpha = 16, .dropout = dropout};
    auto adapter = std::make_shared<LoraAdapter>(*linear, lora, lora_scale(lora));
    adapter->a_ri.copy_(fill_by_hash("a", adapter->a_ri.sizes())).set_requires_grad(true);
    adapter->b_or.copy_(fill_by_hash("b", adapter->b_or.sizes())).set_requires_grad(true);
    linear->set_adapter(adapter);
  }
  return layer;
}

LlamaPass pass_of(const LlamaConfig& config, bool packed) {
  const at::Tensor angles =
      at::outer(at::arange(kTokens, at::kLong).to(at::kFloat),
                scaled_frequencies(config.rope_scaling, config.rope_theta, config.head_dim, 0))
          .unsqueeze(0);
  LlamaPass pass;
  pass.rotation = {angles.cos(), angles.sin()};
  if (packed) {
    auto sequences = std::make_shared<PackedSequences>();
    sequences->starts = {0, kTokens};
    pass.packed = sequences;
  }
  return pass;
}

/// Per token: x, q k v, the attention output and its log-sum-exp, the stream between the blocks,
/// gate and up, the low-rank products; and one float32 per norm.
int64_t lean_bytes(const LlamaConfig& c, int64_t rank) {
  const int64_t stream = 2 * c.hidden, attention = 2 * c.heads * c.head_dim;
  return stream + 3 * attention + attention + 4 * c.heads + stream + 2 * 2 * c.intermediate +
         14 * rank + 2 * 4;
}

/// Additional per token, if the processor computes attention of BF16 in float32: q k v and the
/// attention output are kept in float32, and the latter in BF16 too.
int64_t widened_bytes(const LlamaConfig& c) {
  const bool widens = ops::widens_attention(at::kBFloat16, at::kCPU);
  return widens ? (4 * (4 - 2) + 2) * c.heads * c.head_dim : 0;
}

int64_t kept_bytes(const LlamaConfig& config, int64_t rank, double dropout, bool packed) {
  const LlamaLayer layer = adapted_layer(config, rank, dropout);
  const LlamaPass pass = pass_of(config, packed);
  const ComputeDtypeGuard compute(at::kBFloat16);
  const DropoutGuard position({5, 1, 0});
  const int64_t before = CountingAllocator::live();
  const at::Tensor x =
      fill_by_hash("x", {1, kTokens, config.hidden}).to(at::kBFloat16).requires_grad_();
  const at::Tensor y = LlamaLayer(layer)->forward(x, pass, 0, at::Tensor());
  return CountingAllocator::live() - before - y.numel() * 2;  // y is the next layer's x
}

TEST(Kept, NoMoreThanTheLeanPlanATokenAndLayer) {
  const CountingAllocator counting;
  const LlamaConfig config = small_llama();
  for (const int64_t rank : {16, 128}) {
    for (const double dropout : {0.0, 0.05}) {
      for (const bool packed : {false, true}) {
        EXPECT_EQ(kept_bytes(config, rank, dropout, packed),
                  (lean_bytes(config, rank) + widened_bytes(config)) * kTokens)
            << rank << " " << dropout << " " << packed;
      }
    }
  }
}

/// The figures of the 7B shape: 93.5 KB at rank 16, 95.1 KB at rank 128 (the norms' numbers apart).
TEST(Kept, ThePlanOfTheLargeShape) {
  LlamaConfig config;
  config.hidden = 4096;
  config.intermediate = 11008;
  config.heads = 32;
  config.head_dim = 128;
  EXPECT_EQ(lean_bytes(config, 16) - 8, 93536);
  EXPECT_EQ(lean_bytes(config, 128) - 8, 95104);
}

}  // namespace
}  // namespace lft::test::kept_test
