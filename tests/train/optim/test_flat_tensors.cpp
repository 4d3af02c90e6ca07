// One buffer of gradients and one of low-precision copies: their layout, and that a layer's passes
// then launch almost no op that only casts, stacks, scales or accumulates.
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "models/llama/llama.h"
#include "models/lora/inject_select.h"
#include "models/ops/core/precision.h"
#include "models/ops/weight/masters.h"
#include "src/train/optim/adamw.h"
#include "src/train/optim/flat_tensors.h"
#include "src/train/optim/optimizer.h"

namespace lft::flat_tensors_test {
using namespace lft::llama;
using namespace lft::lora;
using namespace lft::ops;
using namespace lft::train;
namespace {

Trainable trainable(const std::string& name, const std::string& scope, at::IntArrayRef shape) {
  return {name, scope, at::ones(shape).requires_grad_()};
}

TEST(FlatTensors, HoldScopeAfterScopeAndTheAsOfAScopeTogether) {
  const std::vector<Trainable> trainables = {trainable("tower.q.lora_A.weight", "vision", {2, 4}),
                                             trainable("tower.q.lora_B.weight", "vision", {3, 2}),
                                             trainable("layers.0.q.lora_A.weight", "llm", {2, 8}),
                                             trainable("layers.0.q.lora_B.weight", "llm", {5, 2}),
                                             trainable("layers.0.k.lora_A.weight", "llm", {2, 8}),
                                             trainable("layers.0.k.lora_B.weight", "llm", {5, 2}),
                                             trainable("projector.linear.bias", "projector", {3}),
                                             trainable("layers.1.q.lora_A.weight", "llm", {2, 8})};
  const FlatTensors flat = make_flat(trainables, at::kFloat);
  EXPECT_EQ(flat.flat.count_nonzero().item<int64_t>(), 0);
  ASSERT_TRUE(stacked_view({flat.parts[2], flat.parts[4], flat.parts[7]}).defined());
  EXPECT_FALSE(flat.flat.requires_grad());
  int64_t held = 0;
  for (const char* scope : {"llm", "projector", "vision"}) {
    held += flat.of_scope(scope).numel();
    at::Tensor(flat.of_scope(scope)).fill_(1);
    for (size_t i = 0; i < trainables.size(); ++i) {
      EXPECT_EQ(flat.parts[i].sizes(), trainables[i].tensor.sizes());
      EXPECT_EQ(flat.parts[i].storage_offset() * 2 % 16, 0);
      const int64_t ones = flat.parts[i].count_nonzero().item<int64_t>();
      EXPECT_EQ(ones, trainables[i].scope == scope ? flat.parts[i].numel() : 0)
          << trainables[i].name;
      flat.parts[i].zero_();
    }
    flat.flat.zero_();
  }
  EXPECT_EQ(held, flat.flat.numel());
  EXPECT_EQ(flat.of_scope("none").numel(), 0);
  const auto version = flat.parts[1]._version();
  flat.parts[0].add_(1);
  EXPECT_EQ(flat.parts[1]._version(), version)
      << "a part is told from its neighbour by its version";
}

LlamaConfig small() {
  LlamaConfig config;
  config.hidden = 64;
  config.intermediate = 96;
  config.layers = 1;
  config.heads = config.kv_heads = 2;
  config.head_dim = 32;
  config.vocab = 64;
  return config;
}

/// Ops that only cast, add two tensors, scale or copy, each counted once: not
/// the steps inside one.
const std::set<std::string> kTiny = {"aten::_to_copy", "aten::copy_", "aten::add",   "aten::add_",
                                     "aten::mul",      "aten::mul_",  "aten::div",   "aten::zero_",
                                     "aten::fill_",    "aten::cat",   "aten::zeros", "aten::clone"};
const std::set<std::string> kWrappers = {"aten::to", "aten::contiguous", "aten::reshape",
                                         "aten::_backward"};
int64_t tiny_ops = 0;
std::vector<std::string> open_ops;

std::unique_ptr<at::ObserverContext> begin_op(const at::RecordFunction& fn) {
  const bool outer = std::all_of(open_ops.begin(), open_ops.end(), [](const std::string& op) {
    if (op == "lft::widened_product") return false;              // only on CPUs without AVX-512
    return !op.starts_with("aten::") || kWrappers.contains(op);  // autograd nodes have names too
  });
  if (outer && kTiny.contains(fn.name())) ++tiny_ops;
  open_ops.emplace_back(fn.name());
  return nullptr;
}
void end_op(const at::RecordFunction&, at::ObserverContext*) { open_ops.pop_back(); }

struct Way {
  bool adapted = true, kept = true, dropout = false;
};

/// For the second of two micro-batches through one decoder layer in BF16, forward and backward.
int64_t tiny_ops_of(const Way& way) {
  const LlamaConfig config = small();
  const at::TensorOptions options(at::kBFloat16);
  LlamaLayer layer(config, options, options);
  {
    const at::NoGradGuard no_grad;
    for (auto& item : layer->named_parameters()) item.value().fill_(0.02);
  }
  const LoraOptions lora{.rank = 8, .alpha = 16, .dropout = way.dropout ? 0.1 : 0};
  if (way.adapted) inject_lora(linear_sites(*layer), lora, 1);
  std::vector<Trainable> trainables = make_trainable(*layer, {});
  Optimizer optimizer(trainables, param_groups(trainables, 1e-3, -1), make_adamw({}));
  optimizer.zero_gradients();
  if (way.kept) optimizer.refresh_copies(at::kBFloat16);
  const at::Tensor angles = at::rand({1, 24, 16});
  LlamaPass pass;
  pass.rotation = {angles.cos(), angles.sin()};
  const ComputeDtypeGuard compute(at::kBFloat16);
  const DirectGradientsGuard direct(way.kept);
  const DropoutGuard position({5, 1, 0});
  const at::Tensor upstream = at::ones({1, 24, config.hidden}, options);
  for (int micro = 0; micro < 2; ++micro) {
    const at::Tensor x = at::ones({1, 24, config.hidden}, options).requires_grad_();
    tiny_ops = 0;
    const auto handle = at::addThreadLocalCallback(
        at::RecordFunctionCallback(&begin_op, &end_op).scopes({at::RecordScope::FUNCTION}));
    const at::Tensor y = layer->forward(x, pass, 0, at::Tensor());
    y.backward(upstream);
    at::removeCallback(handle);
  }
  for (size_t i = 0; i < trainables.size(); ++i)
    EXPECT_TRUE(optimizer.has_gradient(i)) << trainables[i].name;
  return tiny_ops;
}

/// Ops that LoRA on all seven linear layers adds to a layer. Kept and direct: the gradients of
/// seven B and of the A of four inputs, one fused addition each. Otherwise, in each pass: 7 casts
/// of A, 7 of B and its scale; in the backward pass casts of the gradients of A (of four inputs)
/// and of 7 B, scaled, and 14 additions. In both, 2 casts of norm weights, where their outputs are
/// recomputed.
TEST(FlatTensors, ALayerOfLoraLaunchesElevenTinyOps) {
  const int64_t bare = tiny_ops_of({.adapted = false});
  EXPECT_EQ(tiny_ops_of({}) - bare, 7 + 4 + 2);
  EXPECT_EQ(tiny_ops_of({.kept = false}) - bare, 2 * (7 + 2 * 7) + (4 + 7) + 7 + 14 + 2);
}

/// With dropout each layer has a separate product x A^T: seven gradients of A.
TEST(FlatTensors, AndFourteenWithDropout) {
  const int64_t bare = tiny_ops_of({.adapted = false});
  EXPECT_EQ(tiny_ops_of({.dropout = true}) - bare, 7 + 7 + 2);
}

}  // namespace
}  // namespace lft::flat_tensors_test
