#include "src/train/memory/memory_blocks.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

#include "src/train/memory/memory_delta.h"
#include "src/train/memory/memory_experts.h"

namespace lft::train {
namespace {

bool is_gated(const Stack& stack) { return stack.tower.mlp_in.size() == 2; }

struct Block {
  std::vector<Layer> qkv, in;  // three or one; one or two of a gated MLP
  Layer o, out;
  double tokens = 0, kept = 0, attended = 0;
};

/// The width of each layer that reads the input of attention or of a gated delta rule.
std::vector<double> widths_of(const Stack& s) {
  if (s.delta != nullptr) {
    const auto heads = static_cast<double>(s.delta->value_heads);
    return {static_cast<double>(s.delta->channels()), static_cast<double>(s.delta->values()), heads,
            heads};
  }
  const size_t layers = s.tower.qkv.size();
  return std::vector<double>(layers, 3 / static_cast<double>(layers) * s.attention);
}

Block make_block(const Stack& s, int64_t index) {
  const std::string name = s.tower.layers + std::to_string(index) + ".";
  Block block{.qkv = {},
              .in = {},
              .o = {name + s.tower.o, s.attention, s.width},
              .out = {name + s.tower.mlp_out, s.inner, s.width},
              .tokens = s.tokens,
              .kept = index + 1 == s.tower.count ? s.kept : s.tokens,
              .attended = s.attended};
  const std::vector<double> widths = widths_of(s);
  for (size_t i = 0; i < widths.size(); ++i)
    block.qkv.push_back({name + s.tower.qkv[i], s.width, widths[i]});
  for (const std::string& layer : s.tower.mlp_in)
    block.in.push_back({name + layer, s.width, (s.experts != nullptr ? 2 : 1) * s.inner});
  return block;
}

/// Memory kept by a norm of `rows` rows whose output `users` layers keep as their input. `reached`:
/// its input, the residual stream, needs a gradient.
double norm_keeps(const Counting& c, const Stack& s, double rows, int64_t users, bool reached) {
  const double stream = rows * s.width * s.stream, compute = c.types.compute;
  const double own = reached ? stream + 4 * rows : 0;
  if (users == 0) return own;
  const bool same = c.types.norm == compute;
  // A decoder layer recomputes the normed inputs from the stream.
  if (is_gated(s) && same && c.trains.adapter.low_rank_only) return reached ? own : stream;
  return own + (same ? 1.0 : static_cast<double>(users)) * rows * s.width * compute;
}

/// Memory kept by the norm or the trained scale of a half's result.
double branch_keeps(const Counting& c, const Stack& s, const Block& b, bool graph) {
  const double result = b.kept * s.width * c.types.compute;
  if (s.tower.branch_scales && c.trains.whole(s.tower.layers)) return result;
  return graph && s.tower.branch_norms ? result + 4 * b.kept : 0;
}

/// Memory kept by half of a block. `graph`: whether the input needs a gradient; returns the same
/// for the output.
double attention_keeps(const Counting& c, const Stack& s, const Block& b, bool& graph) {
  const PassTypes& t = c.types;
  const double wide = t.widens_attention ? 4 : t.compute;
  int64_t users = 0;
  double saved = 0;
  for (const Layer& layer : b.qkv) {
    users += c.trains.keeps_input(layer.name);
    saved += adapter_keeps(c, layer, b.tokens);
  }
  saved += norm_keeps(c, s, b.tokens, users, graph);
  graph |= users > 0;
  if (s.delta != nullptr) {
    if (graph) saved += delta_keeps(*s.delta, b.attended, b.kept, t.compute);
    graph |= c.trains.keeps_input(b.o.name);
    return saved + adapter_keeps(c, b.o, b.kept);
  }
  if (graph) saved += b.attended * (4 * s.attention * wide + 4 * s.attention / s.head);
  if (graph && s.tower.head_norms)  // q and k before their norms
    saved += b.tokens * (s.heads + s.kv_heads) * (s.head * t.compute + 4);
  if (t.widens_attention && graph) saved += b.attended * s.attention * t.compute;
  const bool keeps_o = c.trains.keeps_input(b.o.name);
  if (keeps_o && (!graph || b.kept < b.tokens || s.joined || s.gates))
    saved += b.kept * s.attention * t.compute;
  if (graph && s.gates) saved += b.kept * s.attention * t.compute;  // the gate
  graph |= keeps_o;
  return saved + adapter_keeps(c, b.o, b.kept) + branch_keeps(c, s, b, graph);
}

ExpertPass expert_pass(const Counting& c, const Stack& s, const Block& b) {
  return {.experts = *s.experts,
          .tokens = b.kept,
          .hidden = s.width,
          .compute = c.types.compute,
          .at_a_time = c.types.gpu ? 1.0 : static_cast<double>(at::get_num_threads()),
          .sums_copy = c.types.gpu};
}

/// The input of the router and of experts is one tensor, which a norm does not recompute.
double sparse_mlp_keeps(const Counting& c, const Stack& s, const Block& b, bool& graph) {
  const std::string& in = b.in[0].name;
  const std::string mlp = in.substr(0, in.find(".mlp.") + 5);
  const auto shared = static_cast<double>(s.experts->shared_intermediate);
  const ExpertPass pass = expert_pass(c, s, b);
  const bool keeps_in =
      c.trains.keeps_input(in) || c.trains.keeps_input(mlp + "shared_expert_gate");
  double saved = norm_keeps(c, s, b.kept, keeps_in ? 1 : 0, graph);
  graph |= c.trains.elements_under(mlp) > 0;
  saved += adapter_keeps(c, b.in[0], pass.rows()) + adapter_keeps(c, b.out, pass.rows()) +
           adapter_keeps(c, {mlp + "shared_expert_gate", s.width, 1}, b.kept) +
           adapter_keeps(c, {mlp + "shared_expert.gate_proj", s.width, shared}, b.kept) +
           adapter_keeps(c, {mlp + "shared_expert.up_proj", s.width, shared}, b.kept) +
           adapter_keeps(c, {mlp + "shared_expert.down_proj", shared, s.width}, b.kept);
  return saved + (graph ? pass.kept() : 0);
}

double mlp_keeps(const Counting& c, const Stack& s, const Block& b, bool& graph) {
  if (s.experts != nullptr) return sparse_mlp_keeps(c, s, b, graph);
  const bool gated = is_gated(s), keeps_out = c.trains.keeps_input(b.out.name);
  const int64_t users = std::ranges::count_if(
      b.in, [&](const Layer& layer) { return c.trains.keeps_input(layer.name); });
  const double inner = b.kept * s.inner * c.types.compute;
  double saved = norm_keeps(c, s, b.kept, users, graph);
  graph |= users > 0 || keeps_out;
  for (const Layer& layer : b.in) saved += adapter_keeps(c, layer, b.kept);
  saved += adapter_keeps(c, b.out, b.kept);
  // Gate and up; or before the activation and, for the last layer, after it.
  if (graph) saved += (gated || keeps_out ? 2 : 1) * inner;
  if (gated && !c.trains.adapter.low_rank_only && keeps_out)
    saved += inner;  // the product, which a low-rank update recomputes
  return saved + branch_keeps(c, s, b, graph);
}

/// Temporaries of the forward and of the backward pass over an MLP. `keeps`: the forward pass keeps
/// what the backward pass needs.
double mlp_forward(const Counting& c, const Stack& s, const Block& b, bool keeps) {
  if (s.experts == nullptr) return (is_gated(s) ? 3 : 2) * b.kept * s.inner * c.types.compute;
  const ExpertPass pass = expert_pass(c, s, b);
  return pass.forward() + (keeps ? 0 : pass.gate_up());
}
double mlp_backward(const Counting& c, const Stack& s, const Block& b) {
  return s.experts != nullptr ? expert_pass(c, s, b).backward()
                              : mlp_forward(c, s, b, /*keeps=*/true);
}

/// Copies of weights of an MLP while it computes; the threads of a CPU compute several experts.
double mlp_copies(const Counting& c, const Stack& s, const Block& b) {
  return weight_copy(c, b.in[0]) * (s.experts != nullptr ? expert_pass(c, s, b).at_a_time : 1);
}

/// The gradient of a weight of an MLP before it is one of FP32; that of all experts is summed
/// before it is added.
double mlp_weight_gradient(const Counting& c, const Stack& s) {
  const double elements = s.width * s.inner;
  return s.experts != nullptr ? 2 * elements * static_cast<double>(s.experts->count) * 4
                              : elements * (c.types.compute + 4);
}

/// Elements per token of the temporaries of attention, or of a gated delta rule.
double mixing_width(const Stack& s) {
  if (s.delta != nullptr) return delta_width(*s.delta);
  return (s.gates ? 7 : 4) * s.attention;
}

}  // namespace

bool fused_sequences(const PassTypes& types) { return types.gpu && types.compute == 2; }

Stack make_stack(const family::Tower& tower, const std::string& unit, const std::string& part) {
  return {.tower = tower,
          .unit = unit,
          .part = part,
          .width = static_cast<double>(tower.width),
          .attention = static_cast<double>(tower.heads * tower.head_dim),
          .head = static_cast<double>(tower.head_dim),
          .inner = static_cast<double>(tower.inner),
          .heads = static_cast<double>(tower.heads),
          .kv_heads = static_cast<double>(tower.kv_heads)};
}

MemoryUnit block_unit(const Counting& c, const Stack& s, int64_t index, bool reached) {
  const PassTypes& t = c.types;
  const Block b = make_block(s, index);
  const double compute = t.compute, d = s.width, wide = t.widens_attention ? 4 : compute;
  const double inner = b.kept * s.inner * compute;
  MemoryUnit unit{.name = s.unit + std::to_string(index), .part = s.part};
  unit.input = b.tokens * d * s.stream;
  bool graph = reached;
  unit.early = attention_keeps(c, s, b, graph);
  unit.saved = unit.early + mlp_keeps(c, s, b, graph);
  const double dropped = c.trains.drops() ? inner : 0, copy = mlp_copies(c, s, b);
  if (graph) {
    const double gradient = b.kept * d * (s.stream + (s.stream == compute ? 0 : compute));
    unit.backward = gradient + std::max(mlp_backward(c, s, b), inner + dropped) + copy;
    unit.second = b.tokens * d * (s.stream + t.norm) + b.attended * mixing_width(s) * wide +
                  weight_copy(c, b.qkv[0]);
    if (s.delta != nullptr && t.gpu) unit.second += delta_workspace(*s.delta, b.attended);
  }
  const bool fp8 = c.in_fp8(b.in[0].name);
  if (t.widens || fp8) unit.backward += b.kept * (d + s.inner) * (fp8 && c.fp8_products ? 1 : 4);
  unit.forward =
      std::max(b.tokens * d * (s.stream + t.norm) + b.attended * 0.75 * mixing_width(s) * wide,
               b.kept * d * (s.stream + t.norm) + mlp_forward(c, s, b, /*keeps=*/true)) +
      copy;
  if (c.trains.whole(b.in[0].name)) unit.backward += mlp_weight_gradient(c, s);
  unit.gradients = 4 * c.trains.elements_under(s.tower.layers + std::to_string(index) + ".");
  unit.recomputed = c.every > 0 && index % c.every == 0 && graph;
  if (unit.recomputed || !graph) {  // nothing is kept; norms and sums stay to the end
    unit.forward =
        std::max(b.tokens * d * (s.stream + t.norm) + b.attended * mixing_width(s) * wide,
                 b.kept * d * (3 * s.stream + 2 * t.norm) + mlp_forward(c, s, b, /*keeps=*/false)) +
        copy + (graph ? 0 : unit.input);
  }
  return unit;
}

}  // namespace lft::train
