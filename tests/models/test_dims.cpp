// Wrong shapes planted at every module boundary: each must end in one error block with the
// module's path and both shapes by name.
#include <c10/util/Exception.h>

#include <functional>
#include <map>

#include "models/base/call.h"
#include "models/base/dims.h"
#include "models/layers/recompute.h"
#include "models/lora/inject.h"
#include "models/lora/inject_select.h"
#include "models/loss_sum.h"
#include "models/ops/attention/attention.h"
#include "models/ops/elementwise/activation.h"
#include "models/ops/elementwise/rope.h"
#include "models/ops/elementwise/token_logprobs.h"
#include "tiny.h"

namespace lft::dims_test {
using namespace lft::layers;
using namespace lft::llama;
using namespace lft::family;
using namespace lft::llava;
using namespace lft::lora;
using namespace lft::ops;
namespace {

using test::error_of;

std::string block(const ErrorInfo& info) {
  return info.what + "\n" + info.where + "\n" + info.found + "\n" + info.expected;
}

/// An adapter whose forward pass is a function.
class AnyAdapter : public LinearAdapter {
 public:
  using Body = std::function<at::Tensor(const at::Tensor& x, const at::Tensor& weight)>;
  explicit AnyAdapter(Body body) : LinearAdapter("AnyAdapter"), body_(std::move(body)) {}
  at::Tensor forward(const at::Tensor& x, const Weight& weight_oi, const at::Tensor&) override {
    return body_(x, weight_oi.dense());
  }
  at::Tensor merged_oi(const at::Tensor&) const override { return {}; }

 private:
  Body body_;
};

class Slip : public ::testing::Test {
 protected:
  at::Tensor& parameter(const std::string& name) { return model_->named_parameters()[name]; }
  LlamaLayer layer(int64_t i) { return (*model_->language_model->model->layers)[i]; }
  Linear linear(const std::string& name) {
    for (const LinearSite& site : linear_sites(*model_)) {
      if (site.name == name) return site.layer;
    }
    throw std::runtime_error("no layer " + name);
  }
  void reshape_weight(const std::string& name, at::IntArrayRef shape) {
    for (auto& item : model_->named_parameters()) {
      if (item.key() == name) item.value().set_data(at::ones(shape));
    }
  }
  std::string run() {
    return block(error_of([&] { test::loss_sum(model_, batch_); }, ErrorKind::kInternal));
  }

  const family::ModelConfig config_ = test::tiny_config();
  Model model_ = test::make_llava(config_);
  family::Batch batch_ = test::tiny_batch(config_);
};

#define EXPECT_PIECE(text, piece) \
  EXPECT_NE((text).find(piece), std::string::npos) << "no \"" << (piece) << "\" in\n" << (text)

TEST(Dims, FittingShapesPass) {
  const at::Tensor x = at::zeros({2, 17, 256});
  EXPECT_NO_THROW(expect_dims(x, "x", {{"b"}, {"t", 17}, {"d", 256}}));
  EXPECT_NO_THROW(expect_last_dim(x, "x", {"d", 256}));
  EXPECT_NO_THROW(expect_last_dim(at::zeros({256}), "x", {"d", 256}));
  EXPECT_NO_THROW(expect_dims_like(at::zeros({2, 17, 5}), "y", x, {"o", 5}));
  EXPECT_NO_THROW(expect_dims(at::zeros({0, 3}), "x", {{"b", 0}, {"t"}}));
}

TEST(Dims, TheBlockHasBothShapesByName) {
  const at::Tensor x = at::zeros({2, 17, 192});
  const ErrorInfo info = error_of(
      [&] {
        expect_dims(x, "x", {{"b"}, {"t"}, {"d", 256}});
      },
      ErrorKind::kInternal);
  EXPECT_EQ(info.what, "a tensor of the wrong shape: x does not fit: d is 192, not 256");
  EXPECT_EQ(info.where, "the model, outside its modules");
  EXPECT_EQ(info.found, "x [b=2, t=17, d=192]");
  EXPECT_EQ(info.expected, "x [b, t, d=256]");
  EXPECT_FALSE(info.next.empty());

  const ErrorInfo last = error_of(
      [&] {
        expect_last_dim(x, "x", {"i", 256});
      },
      ErrorKind::kInternal);
  EXPECT_EQ(last.found, "x [2, 17, i=192]");
  EXPECT_EQ(last.expected, "x [..., i=256]");
}

TEST(Dims, EveryWrongDimensionIsNamed) {
  const auto fault = [](const std::function<void()>& check) {
    return error_of(check, ErrorKind::kInternal).what;
  };
  const at::Tensor x = at::zeros({2, 3});
  EXPECT_PIECE(fault([&] {
                 expect_dims(x, "x", {{"b", 4}, {"d", 5}});
               }),
               "b is 2, not 4; d is 3, not 5");
  EXPECT_PIECE(fault([&] {
                 expect_dims(x, "x", {{"b"}, {"t"}, {"d"}});
               }),
               "x has 2 dimensions, not 3");
  EXPECT_PIECE(fault([&] { expect_dims(at::Tensor(), "x", {{"b"}}); }), "x is missing");
  EXPECT_PIECE(fault([&] {
                 expect_last_dim(at::zeros({}), "x", {"d", 1});
               }),
               "x has 0 dimensions, not at least 1");
  EXPECT_PIECE(fault([&] {
                 expect_dims_like(at::zeros({1, 3}), "y", x, {"o", 3});
               }),
               "dimension 0 is 1, not 2");
}

TEST(Dims, OpsCheckWhatTheyAreGiven) {
  const auto fault = [](const std::function<void()>& op) {
    return error_of(op, ErrorKind::kInternal).what;
  };
  const at::Tensor q = at::zeros({2, 4, 5, 8}), angles = at::zeros({1, 5, 4});
  EXPECT_PIECE(fault([&] {
                 attention(q, at::zeros({2, 2, 5, 8}), q, at::Tensor(), true);
               }),
               "k does not fit: h is 2, not 4");
  EXPECT_PIECE(fault([&] {
                 attention(q, q, at::zeros({2, 4, 6, 8}), at::Tensor(), true);
               }),
               "v does not fit: s is 6, not 5");
  EXPECT_PIECE(fault([&] {
                 rope(at::zeros({2, 6, 4, 8}), angles, angles);
               }),
               "cos does not fit: t is 5, not 6");
  EXPECT_PIECE(fault([&] {
                 rope(at::zeros({2, 5, 4, 8}), angles, at::zeros({1, 5, 3}));
               }),
               "sin does not fit: e/2 is 3, not 4");
  EXPECT_PIECE(fault([&] {
                 gated(at::zeros({3, 4}), at::zeros({3, 2}));
               }),
               "up does not fit: m is 2, not 4");
  const at::Tensor head = at::zeros({11, 8}), targets = at::zeros({3}, at::kLong);
  EXPECT_PIECE(fault([&] {
                 token_logprobs(at::zeros({3, 7}), head, targets);
               }),
               "hidden does not fit: d is 7, not 8");
  EXPECT_PIECE(fault([&] {
                 token_logprobs(at::zeros({4, 8}), head, targets);
               }),
               "targets does not fit: k is 3, not 4");
}

/// The weight of one layer has another shape; the boundary's message.
TEST_F(Slip, AWeightOfAnotherShapeIsNamedAtTheNextBorder) {
  struct Case {
    std::string weight;
    std::vector<int64_t> shape;
    std::string where, found, expected;
  };
  const std::string layer = "language_model.model.layers.1",
                    clip = "vision_tower.vision_model.encoder.layers.0";
  const std::vector<Case> cases = {
      {layer + ".self_attn.q_proj.weight",
       {24, 32},
       layer + ".self_attn\n",
       "the output of q_proj [b=3, t=23, h*e=24]",
       "h*e=32"},
      {layer + ".self_attn.k_proj.weight",
       {32, 32},
       layer + ".self_attn\n",
       "the output of k_proj [b=3, t=23, h*e=32]",
       "h*e=16"},
      {layer + ".self_attn.v_proj.weight",
       {8, 32},
       layer + ".self_attn\n",
       "the output of v_proj [b=3, t=23, h*e=8]",
       "h*e=16"},
      {layer + ".self_attn.o_proj.weight",
       {32, 40},
       layer + ".self_attn.o_proj\n",
       "x [7, i=32]",
       "x [..., i=40]"},
      {layer + ".self_attn.o_proj.weight",
       {1, 32},
       layer + "\n",
       "the output of self_attn [7, d=1]",
       "[7, d=32]"},
      {layer + ".mlp.gate_proj.weight", {48, 31}, layer + ".mlp\n", "x [7, d=32]", "x [..., d=31]"},
      {layer + ".mlp.up_proj.weight",
       {48, 31},
       layer + ".mlp.up_proj\n",
       "x [7, i=32]",
       "x [..., i=31]"},
      {layer + ".mlp.up_proj.weight",
       {47, 32},
       layer + ".mlp.down_proj\n",
       "up [7, m=47]",
       "up [7, m=48]"},
      {layer + ".mlp.down_proj.weight",
       {32, 50},
       layer + ".mlp.down_proj\n",
       "x [7, i=48]",
       "x [..., i=50]"},
      {layer + ".mlp.down_proj.weight",
       {31, 48},
       layer + "\n",
       "the output of mlp [7, d=31]",
       "[7, d=32]"},
      {layer + ".input_layernorm.weight",
       {31},
       layer + "\n",
       "x [b=3, t=23, d=32]",
       "x [b, t, d=31]"},
      {layer + ".post_attention_layernorm.weight",
       {31},
       layer + ".post_attention_layernorm\n",
       "x [7, d=32]",
       "x [..., d=31]"},
      {"language_model.model.norm.weight",
       {16},
       "language_model.model.norm\n",
       "x [7, d=32]",
       "x [..., d=16]"},
      {"language_model.lm_head.weight",
       {64, 30},
       "language_model\n",
       "hidden [k=7, d=32]",
       "hidden [k, d=30]"},
      {"multi_modal_projector.linear_1.weight",
       {32, 48},
       "multi_modal_projector\n",
       "image features [n=3, p=9, d=24]",
       "[n, p, d=48]"},
      {"multi_modal_projector.linear_2.weight",
       {16, 32},
       "module multi_modal_projector.linear_2\n",
       "bias [o=32]",
       "bias [o=16]"},
      {"vision_tower.vision_model.embeddings.patch_embedding.weight",
       {24, 4, 6, 6},
       "patch_embedding\n",
       "pixels [n=3, c=3, h=18, w=18]",
       "c=4"},
      {"vision_tower.vision_model.embeddings.position_embedding.weight",
       {17, 24},
       "vision_tower.vision_model.embeddings\n",
       "patches [n=3, p=9, d=24]",
       "[n=3, p=16, d=24]"},
      {clip + ".layer_norm1.weight", {23}, clip + "\n", "x [n=3, s=10, d=24]", "d=23"},
      {clip + ".layer_norm2.weight", {23}, clip + ".layer_norm2\n", "x [3, 10, d=24]", "d=23"},
      {clip + ".self_attn.q_proj.weight",
       {24, 23},
       clip + ".self_attn\n",
       "x [n=3, s=10, d=24]",
       "d=23"},
      {clip + ".mlp.fc1.weight", {40, 23}, clip + ".mlp\n", "x [n=3, s=10, d=24]", "d=23"},
      {clip + ".mlp.fc2.weight", {24, 41}, clip + ".mlp.fc2\n", "x [3, 10, i=40]", "i=41"},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.weight);
    model_ = test::make_llava(config_);
    reshape_weight(each.weight, each.shape);
    const std::string text = run();
    EXPECT_PIECE(text, each.where);
    EXPECT_PIECE(text, "\n" + each.found);
    EXPECT_PIECE(text, each.expected);
    EXPECT_EQ(text.find("mat1"), std::string::npos) << text;  // not LibTorch's message
  }
}

TEST_F(Slip, MergeOfImageFeatures) {
  for (auto& item : model_->named_parameters()) {
    const std::string name = item.key();
    if (name == "multi_modal_projector.linear_2.weight") item.value().set_data(at::ones({16, 32}));
    if (name == "multi_modal_projector.linear_2.bias") item.value().set_data(at::ones({16}));
  }
  const std::string text = run();
  EXPECT_PIECE(text, "projected image features [n=3, p=9, d=16]");
  EXPECT_PIECE(text, "[n=3, p=9, d=32]");
}

TEST_F(Slip, BatchLabelsRowsAndTargets) {
  family::Batch narrow = batch_;
  narrow.labels_bt = narrow.labels_bt.narrow(1, 0, 20);
  EXPECT_PIECE(error_of([&] { test::loss_sum(model_, narrow); }, ErrorKind::kInternal).found,
               "labels [b=3, t=20]");
  family::Batch flat = batch_;
  flat.input_ids_bt = flat.input_ids_bt.flatten();
  EXPECT_PIECE(error_of([&] { model_->all_logits(flat); }, ErrorKind::kInternal).what,
               "input_ids has 1 dimensions, not 2");

  const at::Tensor embeds = model_->embed(batch_), rows = at::arange(4, at::kLong),
                   targets = at::arange(3, at::kLong);
  LlamaForCausalLm& text = model_->language_model;
  EXPECT_PIECE(
      error_of([&] { text->forward(embeds, rows, targets, nullptr); }, ErrorKind::kInternal).found,
      "targets [k=3]");
  EXPECT_PIECE(error_of([&] { text->forward(embeds.select(0, 0), rows, at::Tensor(), nullptr); },
                        ErrorKind::kInternal)
                   .found,
               "embeds [23, 32]");
  EXPECT_PIECE(error_of(
                   [&] {
                     text->forward(embeds, rows.view({2, 2}), at::Tensor(), nullptr);
                   },
                   ErrorKind::kInternal)
                   .found,
               "rows [2, 2]");
}

TEST_F(Slip, AdaptersAndBOfTheWrongShape) {
  const std::string name = "language_model.model.layers.0.mlp.up_proj";
  const auto planted = [&](const std::string& which, at::IntArrayRef shape) {
    model_ = test::make_llava(config_);
    inject_lora(select_sites(linear_sites(*model_), {"llm:all-linear"}), {.rank = 4}, 1);
    reshape_weight(name + ".adapter." + which, shape);
    return run();
  };
  EXPECT_PIECE(planted("lora_A", {4, 30}), name + "\nlora_A [r=4, i=30]\nlora_A [r, i=32]");
  EXPECT_PIECE(planted("lora_B", {48, 5}), name + "\nlora_B [o=48, r=5]\nlora_B [o=48, r=4]");
  EXPECT_PIECE(planted("lora_B", {40, 4}), name + "\nlora_B [o=40, r=4]\nlora_B [o=48, r=4]");
}

/// LibTorch would broadcast these silently.
TEST_F(Slip, AnAdapterOfOnesOwnMayNotChangeTheShape) {
  const std::string name = "language_model.model.layers.0.self_attn.o_proj";
  const std::map<std::string, AnyAdapter::Body> bodies = {
      {"[1, 23, o=32]",
       [](const at::Tensor& x, const at::Tensor& w) { return at::matmul(x, w.t()).mean(0, true); }},
      {"[3, 23, o=1]", [](const at::Tensor& x,
                          const at::Tensor& w) { return at::matmul(x, w.t()).mean(-1, true); }},
      {"[69, 32]",
       [](const at::Tensor& x, const at::Tensor& w) { return at::matmul(x, w.t()).flatten(0, 1); }},
  };
  for (const auto& [found, body] : bodies) {
    linear(name)->set_adapter(std::make_shared<AnyAdapter>(body));
    const std::string text = run();
    EXPECT_PIECE(text, "module " + name + "\nthe adapter's output " + found +
                           "\nthe adapter's output [3, 23, o=32]");
  }
}

TEST_F(Slip, AnErrorOfLibTorchsGetsThePathOfTheInnermostModule) {
  const std::string name = "language_model.model.layers.1.mlp.gate_proj";
  linear(name)->set_adapter(std::make_shared<AnyAdapter>(
      [](const at::Tensor& x, const at::Tensor& w) { return at::mm(x, w); }));
  try {
    test::loss_sum(model_, batch_);
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_EQ(module_path_of(error), name);
    EXPECT_PIECE(std::string(error.what_without_backtrace()), "cannot be multiplied");
    EXPECT_EQ(error.context().size(), 1u);
  }
  EXPECT_EQ(current_module_path(), "");
  try {
    at::mm(at::zeros({2, 3}), at::zeros({2, 3}));
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_EQ(module_path_of(error), "");
  }
}

TEST_F(Slip, OutOfMemoryStaysWhatItIs) {
  linear("language_model.model.layers.0.mlp.up_proj")
      ->set_adapter(std::make_shared<AnyAdapter>([](const at::Tensor&, const at::Tensor&) {
        TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate 2.00 GiB");
        return at::Tensor();
      }));
  try {
    test::loss_sum(model_, batch_);
    FAIL();
  } catch (const c10::OutOfMemoryError& error) {
    EXPECT_EQ(module_path_of(error), "language_model.model.layers.0.mlp.up_proj");
  }
}

/// A recomputed block fails inside the backward pass: autograd passes the error on unchanged.
TEST_F(Slip, InTheBackwardPassOfARecomputedBlock) {
  const std::string name = "language_model.model.layers.1.mlp.up_proj";
  int calls = 0;
  bool torch = false;
  linear(name)->set_adapter(
      std::make_shared<AnyAdapter>([&](const at::Tensor& x, const at::Tensor& w) {
        if (++calls < 2) return at::matmul(x, w.t());
        return torch ? at::mm(x, w) : at::matmul(x, w.t()).narrow(-1, 0, 40);
      }));
  make_trainable(*model_, {"llm"});
  const auto train = [&] {
    calls = 0;
    const RecomputeGuard every(1);
    test::loss_sum(model_, batch_).backward();
  };
  const ErrorInfo info = error_of(train, ErrorKind::kInternal);
  EXPECT_EQ(info.where, "module " + name);
  EXPECT_EQ(info.found, "the adapter's output [7, o=40]");
  torch = true;
  try {
    train();
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_EQ(module_path_of(error), name);
  }
}

}  // namespace
}  // namespace lft::dims_test
