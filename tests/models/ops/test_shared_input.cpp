// Layers of one input that share work: the values and gradients of plain ops with any of them
// frozen, dropped or missing, and what is kept.
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>

#include "models/base/call.h"
#include "models/layers/linear_group.h"
#include "models/lora/lora.h"
#include "models/ops/core/precision.h"
#include "models/ops/elementwise/dropout.h"
#include "models/tiny.h"
#include "support/counting_allocator.h"

namespace lft::test::shared_input_test {
namespace {

constexpr int64_t kIn = 24;

/// Three layers of one normed input. A layer of rank 0 has no adapter.
struct Group {
  std::vector<int64_t> outs = {20, 12, 16}, ranks = {3, 5, 4};
  double dropout = 0;
  bool trains_x = true, trains_norm = false, trains_base = false, trains_a = true, trains_b = true,
       bias = false;
  at::ScalarType compute = at::kFloat, stored = at::kFloat;
  std::vector<int64_t> leading = {2, 7};
};

struct Leaves {
  at::Tensor x, norm;
  std::vector<Linear> layers;
  std::vector<LoraAdapter*> adapters;
  std::vector<std::pair<std::string, at::Tensor>> trained;

  explicit Leaves(const Group& g) {
    const at::NoGradGuard no_grad;
    std::vector<int64_t> shape = g.leading;
    shape.push_back(kIn);
    x = (fill_by_hash("x", shape) * 3).to(g.stored);
    norm = fill_by_hash("norm.weight", {kIn}).to(g.stored);
    train("x", x, g.trains_x);
    train("norm", norm, g.trains_norm);
    for (size_t i = 0; i < g.outs.size(); ++i) {
      const std::string name = std::to_string(i);
      Linear layer(kIn, g.outs[i], g.bias, at::TensorOptions().dtype(g.stored));
      layer->weight.copy_(fill_by_hash(name + "w", {g.outs[i], kIn}));
      train(name + "w", layer->weight, g.trains_base);
      if (g.bias) {
        layer->bias.copy_(fill_by_hash(name + "bias", {g.outs[i]}));
        train(name + "bias", layer->bias, g.trains_base);
      }
      adapters.push_back(nullptr);
      if (g.ranks[i] > 0) {
        const LoraOptions options{
            .rank = g.ranks[i],
            .alpha = 1.5 * static_cast<double>(g.ranks[i] + static_cast<int64_t>(i)),
            .dropout = g.dropout};
        auto adapter = std::make_shared<LoraAdapter>(*layer, options, lora_scale(options));
        adapter->a_ri.copy_(fill_by_hash(name + "a", adapter->a_ri.sizes()));
        adapter->b_or.copy_(fill_by_hash(name + "b", adapter->b_or.sizes()));
        train(name + "a", adapter->a_ri, g.trains_a);
        train(name + "b", adapter->b_or, g.trains_b);
        adapters.back() = adapter.get();
        layer->set_adapter(adapter);
      }
      layers.push_back(layer);
    }
  }

  void train(const std::string& name, at::Tensor& tensor, bool trains) {
    if (!trains) return;
    tensor.set_requires_grad(true);
    trained.emplace_back(name, tensor);
  }
  std::vector<at::Tensor> leaves() const {
    std::vector<at::Tensor> result;
    for (const auto& [name, tensor] : trained) result.push_back(tensor);
    return result;
  }
};

enum class Way { kShared, kAlone };

std::vector<at::Tensor> outputs(const Leaves& t, Way way) {
  const Normed x = add_rms_norm(t.x, {}, t.norm, 1e-5);
  const LinearGroup group(t.layers, x);
  std::vector<at::Tensor> result;
  for (size_t i = 0; i < t.layers.size(); ++i) {
    result.push_back(way == Way::kShared
                         ? call_indexed("layer", static_cast<int64_t>(i), group[i], x.y)
                         : call_indexed("layer", static_cast<int64_t>(i), t.layers[i], x.y));
  }
  return result;
}

/// The definition in double, without any lft op except the masks.
std::vector<at::Tensor> plain(const Leaves& t, const std::vector<at::Tensor>& wide,
                              double dropout_p) {
  const auto value = [&](const std::string& name, const at::Tensor& frozen) {
    for (size_t k = 0; k < t.trained.size(); ++k) {
      if (t.trained[k].first == name) return wide[k];
    }
    return frozen.detach().to(at::kDouble);
  };
  const at::Tensor x = value("x", t.x);
  const at::Tensor y = x * at::rsqrt((x * x).mean(-1, true) + 1e-5) * value("norm", t.norm);
  std::vector<at::Tensor> result;
  for (size_t i = 0; i < t.layers.size(); ++i) {
    const std::string name = std::to_string(i);
    at::Tensor out = at::matmul(y, value(name + "w", t.layers[i]->weight).t());
    if (t.layers[i]->bias.defined()) out = out + value(name + "bias", t.layers[i]->bias);
    if (t.adapters[i] != nullptr) {
      const LoraAdapter& adapter = *t.adapters[i];
      const DropoutMask mask = dropout_mask(dropout_p, "layer." + name);
      const at::Tensor factors = dropout(at::ones(y.sizes()), mask).to(at::kDouble);
      const double scale = 1.5 *
                           static_cast<double>(adapter.a_ri.size(0) + static_cast<int64_t>(i)) /
                           static_cast<double>(adapter.a_ri.size(0));
      out = out + scale * at::matmul(at::matmul(y * factors, value(name + "a", adapter.a_ri).t()),
                                     value(name + "b", adapter.b_or).t());
    }
    result.push_back(out);
  }
  return result;
}

at::Tensor weighed(const std::vector<at::Tensor>& values) {
  at::Tensor sum;
  for (size_t i = 0; i < values.size(); ++i) {
    const at::Tensor upstream =
        fill_by_hash("upstream" + std::to_string(i), values[i].sizes()).to(values[i].scalar_type());
    const at::Tensor part = (values[i] * upstream).to(at::kDouble).sum();
    sum = sum.defined() ? sum + part : part;
  }
  return sum;
}

std::vector<at::Tensor> gradients(const at::Tensor& loss, const std::vector<at::Tensor>& leaves,
                                  bool retain = false) {
  return torch::autograd::grad({loss}, leaves, {}, retain, /*create_graph=*/false);
}

void expect_plain(const Group& g, double tolerance) {
  const ComputeDtypeGuard compute(g.compute);
  const DropoutGuard position({7, 3, 1});
  const Leaves t(g);
  const std::vector<at::Tensor> got = outputs(t, Way::kShared);
  std::vector<at::Tensor> wide;
  for (const at::Tensor& leaf : t.leaves())
    wide.push_back(leaf.detach().to(at::kDouble).requires_grad_());
  const std::vector<at::Tensor> want = plain(t, wide, g.dropout);
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].scalar_type(), g.compute);
    EXPECT_LT(relative_error(got[i], want[i]), tolerance) << "output " << i;
  }
  if (t.trained.empty()) return;
  const std::vector<at::Tensor> dgot = gradients(weighed(got), t.leaves()),
                                dwant = gradients(weighed(want), wide);
  for (size_t k = 0; k < dgot.size(); ++k) {
    EXPECT_EQ(dgot[k].scalar_type(), t.trained[k].second.scalar_type());
    EXPECT_LT(relative_error(dgot[k], dwant[k]), tolerance) << t.trained[k].first;
  }
}

// Float32 sums of at most 24 terms, three products deep: far below 2^-24 * 24 * 3 = 4e-6. BF16
// rounds inputs, weights, intermediates and results to 2^-9 each, about seven roundings in
// sequence: 1.4e-2.
constexpr double kFloatError = 4e-6, kBf16Error = 1.4e-2;

std::vector<Group> cases() {
  std::vector<Group> groups;
  for (const double p : {0.0, 0.3}) {
    groups.push_back({.dropout = p});
    groups.push_back({.dropout = p, .trains_x = false});
    groups.push_back({.dropout = p, .trains_a = false});
    groups.push_back({.dropout = p, .trains_b = false});
    groups.push_back({.dropout = p, .trains_x = false, .trains_a = false});
    groups.push_back({.dropout = p, .trains_a = false, .trains_b = false});
    groups.push_back({.dropout = p, .trains_norm = true, .trains_base = true, .bias = true});
    groups.push_back({.ranks = {0, 5, 0}, .dropout = p});
    groups.push_back({.ranks = {4, 0, 4}, .dropout = p, .trains_base = true});
    groups.push_back({.outs = {20}, .ranks = {2}, .dropout = p, .leading = {1}});
  }
  groups.push_back({.ranks = {0, 0, 0}});
  groups.push_back({.ranks = {0, 0, 0}, .trains_base = true, .bias = true});
  return groups;
}

TEST(SharedInput, ValuesAndGradientsAreThoseOfPlainOpsInFloat32) {
  for (const Group& g : cases()) expect_plain(g, kFloatError);
}

TEST(SharedInput, AndInBf16) {
  for (Group g : cases()) {
    g.compute = at::kBFloat16;
    for (const at::ScalarType stored : {at::kBFloat16, at::kFloat}) {
      g.stored = stored;
      expect_plain(g, kBf16Error);
    }
  }
}

TEST(SharedInput, AndInFp16) {  // 2^-12 per rounding
  for (Group g : cases()) {
    g.compute = at::kHalf;
    for (const at::ScalarType stored : {at::kHalf, at::kFloat}) {  // float32: nothing is shared
      g.stored = stored;
      expect_plain(g, kBf16Error / 8);
    }
  }
}

/// Both round at the same places except for the order of the sums into dx.
TEST(SharedInput, GivesWhatLayersAloneGive) {
  for (const Group& g : cases()) {
    const DropoutGuard position({7, 3, 1});
    const Leaves t(g);
    const std::vector<at::Tensor> shared = outputs(t, Way::kShared),
                                  alone = outputs(t, Way::kAlone);
    for (size_t i = 0; i < shared.size(); ++i)
      EXPECT_LT(relative_error(shared[i], alone[i]), 1e-6) << i;
    if (t.trained.empty()) continue;
    const auto a = gradients(weighed(shared), t.leaves()),
               b = gradients(weighed(alone), t.leaves());
    for (size_t k = 0; k < a.size(); ++k)
      EXPECT_LT(relative_error(a[k], b[k]), 1e-6) << t.trained[k].first;
  }
}

TEST(SharedInput, TheSameBitsAgain) {
  const Leaves t({.trains_base = true, .bias = true});
  const std::vector<at::Tensor> first = gradients(weighed(outputs(t, Way::kShared)), t.leaves());
  const std::vector<at::Tensor> again = gradients(weighed(outputs(t, Way::kShared)), t.leaves());
  for (size_t k = 0; k < first.size(); ++k)
    EXPECT_TRUE(at::equal(first[k], again[k])) << t.trained[k].first;
}

/// Backward passes through parts of the graph do not affect those that follow.
TEST(SharedInput, AGraphMayBeDifferentiatedInPartsAndAgain) {
  const Leaves t({.trains_base = true});
  const std::vector<at::Tensor> y = outputs(t, Way::kShared);
  const at::Tensor loss = weighed(y);
  const std::vector<at::Tensor> whole = gradients(loss, t.leaves(), /*retain=*/true);
  for (size_t k = 0; k < t.trained.size(); ++k) {
    EXPECT_TRUE(at::equal(gradients(loss, {t.trained[k].second}, true)[0], whole[k]))
        << t.trained[k].first;
  }
  const std::vector<at::Tensor> last = gradients(weighed({y[2]}), {t.x, t.adapters[2]->a_ri}, true);
  const Leaves u({.trains_base = true});
  const std::vector<at::Tensor> fresh =
      gradients(weighed({outputs(u, Way::kShared)[2]}), {u.x, u.adapters[2]->a_ri});
  for (size_t k = 0; k < last.size(); ++k) EXPECT_TRUE(at::equal(last[k], fresh[k])) << k;
  const std::vector<at::Tensor> again = gradients(loss, t.leaves());
  for (size_t k = 0; k < again.size(); ++k)
    EXPECT_TRUE(at::equal(again[k], whole[k])) << t.trained[k].first;
}

/// A layer without a gradient has none, and uninitialised memory does not affect the others'.
TEST(SharedInput, ALayerOutsideTheLossCountsAsZero) {
  const Leaves t({});
  const std::vector<at::Tensor> y = outputs(t, Way::kShared);
  const auto got = gradients(weighed({y[0]}), {t.adapters[0]->a_ri, t.adapters[1]->a_ri, t.x});
  EXPECT_EQ(got[1].abs().max().item<float>(), 0);
  const Leaves u({});
  const auto want = gradients(weighed({outputs(u, Way::kAlone)[0]}), {u.adapters[0]->a_ri, u.x});
  EXPECT_LT(relative_error(got[0], want[0]), 1e-6);
  EXPECT_LT(relative_error(got[2], want[1]), 1e-6);
}

std::map<std::string, int> ops_run;

std::unique_ptr<at::ObserverContext> count_op(const at::RecordFunction& fn) {
  ++ops_run[fn.name()];
  return nullptr;
}

TEST(SharedInput, OneProductForTheUpdatesOfAllAndNoSumOfGradients) {
  const Leaves t({});
  const Normed x = add_rms_norm(t.x, {}, t.norm, 1e-5);
  const LinearGroup group(t.layers, x);
  ops_run.clear();
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(&count_op).scopes({at::RecordScope::FUNCTION}));
  std::vector<at::Tensor> y;
  for (size_t i = 0; i < 3; ++i) y.push_back(call("layer", group[i], x.y));
  EXPECT_EQ(ops_run["aten::mm"], 3 + 1);  // x W^T of each, x A^T of all
  EXPECT_EQ(ops_run["aten::addmm_"], 3);  // h B^T
  ops_run.clear();
  const std::vector<at::Tensor> upstream = {at::ones_like(y[0]), at::ones_like(y[1]),
                                            at::ones_like(y[2])};
  torch::autograd::grad(y, t.leaves(), upstream);
  at::removeCallback(handle);
  EXPECT_EQ(ops_run["aten::mm"], 1 + 3 + 1 + 3);  // dx starts; dh of each, dA of all, dB of each
  EXPECT_EQ(ops_run["aten::addmm_"], 2 + 1);      // dx continues; the contribution of all updates
  EXPECT_EQ(ops_run["aten::add"] + ops_run["aten::add_"], 0);
}

TEST(SharedInput, NothingIsKeptOfANormedInput) {
  const CountingAllocator counting;
  const Group g{.leading = {64, 16}};
  const Leaves t(g);
  const int64_t rows = 64 * 16, before = CountingAllocator::live();
  const std::vector<at::Tensor> y = outputs(t, Way::kShared);
  const int64_t results = rows * (20 + 12 + 16) * 4, h = rows * (3 + 5 + 4) * 4, rstd = rows * 4;
  EXPECT_EQ(CountingAllocator::live() - before, results + h + rstd);
}

TEST(SharedInput, AnInputChangedInPlaceIsRefused) {
  const Leaves t({});
  const Normed x = add_rms_norm(t.x, {}, t.norm, 1e-5);
  const LinearGroup group(t.layers, x);
  const at::Tensor first = call("q", group[0], x.y);
  x.y.detach().mul_(2);
  const at::Tensor second = call("k", group[1], x.y);
  try {
    (first.sum() + second.sum()).backward();
    FAIL() << "no error";
  } catch (const c10::Error& error) {
    EXPECT_NE(error.msg().find("modified by an inplace operation: [CPUFloatType [2, 7, 24]] is at "
                               "version 1; expected version 0"),
              std::string::npos)
        << error.msg();
  }
}

TEST(SharedInput, WithoutAGraphTheSameValues) {
  const Leaves t({});
  const std::vector<at::Tensor> want = outputs(t, Way::kShared);
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> got = outputs(t, Way::kShared);
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_FALSE(got[i].requires_grad());
    EXPECT_TRUE(at::equal(got[i], want[i]));
  }
}

}  // namespace
}  // namespace lft::test::shared_input_test
