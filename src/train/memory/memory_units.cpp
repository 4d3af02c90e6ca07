#include "src/train/memory/memory_units.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "kernels/nf4/nf4.h"
#include "models/family/model.h"
#include "models/family/scopes.h"
#include "models/lora/registry.h"
#include "models/ops/core/gemm.h"
#include "models/ops/elementwise/token_logprobs.h"
#include "models/ops/weight/fp8.h"
#include "src/train/inputs/init_adapter.h"
#include "src/train/inputs/model_shapes.h"
#include "src/train/inputs/run_objective.h"
#include "src/train/memory/memory_delta.h"
#include "src/train/memory/memory_experts.h"
#include "src/train/optim/rules.h"

namespace lft::train {
namespace {

constexpr double kWidenRows = 4096;  // from models/ops/token_logprobs

/// Bytes of a quantized weight [out, in], or of those of experts, whose rows together are `out`.
double bytes_of_codes(ops::BaseStorage storage, double out, double in, double experts) {
  if (storage == ops::BaseStorage::kFp8) return 2 * out * in + 4 * (out + in * experts);
  return out * in * (0.5 + 1.0 / kNf4Block + 4.0 / (kNf4Block * kNf4ScaleBlock));
}

double experts_of(const family::ModelConfig& config, const std::string& parameter) {
  return config.family->names.is_expert_weight(parameter)
             ? static_cast<double>(config.text.experts.count)
             : 1;
}

/// The trained parts of a model, by name.
struct Trains {
  explicit Trains(const RunSettings& settings)
      : recipe(settings.recipe),
        shapes(shape_only(settings.config)),
        layout(family::read_layout(*shapes)) {
    const std::vector<lora::LinearSite> sites = adapted_sites(recipe, *shapes, nullptr);
    options = lora_options(recipe, sites);
    for (const lora::LinearSite& site : sites) {
      const bool never_runs = std::ranges::any_of(
          layout.unused_modules,
          [&](const std::string& module) { return site.name.starts_with(module + "."); });
      if (never_runs) continue;  // its adapter exists but has no effect
      adapted_names.insert(site.name);
      for (const lora::AdapterTensor& tensor : variant.tensors) {
        trainables.emplace_back(site.name + "." + tensor.name,
                                shape_of(tensor, site.layer->weight.sizes(),
                                         options.of(site.name).rank, site.layer->experts));
      }
    }
    for (const auto& parameter : shapes->named_parameters()) {
      const at::Tensor& tensor = parameter.value();
      const auto elements = static_cast<double>(tensor.numel());
      base.frozen += elements;
      if (in_decoder_layer(parameter.key()) && tensor.dim() == 2) {
        const bool coded = settings.storage != ops::BaseStorage::kDense;
        const double bytes =
            coded ? bytes_of_codes(settings.storage, static_cast<double>(tensor.size(0)),
                                   static_cast<double>(tensor.size(1)),
                                   experts_of(settings.config, parameter.key()))
                  : elements * static_cast<double>(c10::elementSize(settings.base_dtype));
        base.layer_bytes += bytes;
        if (coded) base.coded += elements, base.coded_bytes += bytes;
      }
      if (whole(parameter.key())) trainables.emplace_back(parameter.key(), tensor.sizes().vec());
    }
  }
  bool whole(const std::string& name) const { return trains_whole(recipe, name); }
  bool adapted(const std::string& name) const { return adapted_names.contains(name); }
  bool keeps_input(const std::string& name) const { return whole(name) || adapted(name); }
  /// Elements of the trainables whose names have this prefix.
  double elements_under(const std::string& prefix) const {
    double sum = 0;
    for (const auto& [name, sizes] : trainables)
      sum += name.starts_with(prefix) ? static_cast<double>(c10::multiply_integers(sizes)) : 0;
    return sum;
  }
  bool drops() const { return recipe.lora.dropout > 0; }

  const recipe::Recipe& recipe;
  const lora::Variant& variant = lora::find_variant(recipe.lora.variant);
  const lora::AdapterMemory& adapter = variant.memory;
  family::Model shapes;
  family::ModelLayout layout;
  lora::LoraOptions options;
  std::set<std::string> adapted_names;
  /// An adapter's parameters, or a fully trained parameter, with shapes.
  std::vector<std::pair<std::string, std::vector<int64_t>>> trainables;
  TrainedSize base;  // without adapters, as if all were frozen
};

struct Counting {
  const family::ModelConfig& config;
  const Trains& trains;
  PassTypes types;
  PassShape shape;
  int64_t every = 0;  // blocks recomputed
  ops::BaseStorage storage = ops::BaseStorage::kDense;
  bool fp8_products = false;  // of the device

  bool coded(const std::string& name) const {
    return storage != ops::BaseStorage::kDense && in_decoder_layer(name);
  }
  bool in_fp8(const std::string& name) const {
    return storage == ops::BaseStorage::kFp8 && in_decoder_layer(name) && types.compute == 2;
  }
};

/// A linear layer.
struct Layer {
  std::string name;
  double in = 0, out = 0;
};

/// Bytes of the weight's copy in the compute dtype, if it is stored in another. If products are
/// computed in float32 both operands are converted, as are those of FP8 weights on a device without
/// FP8 products.
double weight_copy(const Counting& c, const Layer& layer) {
  const double elements = layer.in * layer.out, compute = c.types.compute;
  if (c.in_fp8(layer.name)) return c.fp8_products ? 0 : elements * 4;
  const bool whole = c.trains.whole(layer.name), coded = c.coded(layer.name);
  const double stored = whole ? 4 : coded ? 0 : c.types.weight;
  const double lengths = c.trains.adapter.makes_weight && c.trains.adapted(layer.name)
                             ? elements * (stored == 4 ? 4 : 8)
                             : 0;  // W + B A in FP32
  const bool casts = whole ? compute != 4 : coded || c.types.casts;
  return std::max(lengths, elements * ((casts ? compute : 0) + (c.types.widens ? 4 : 0)));
}

/// Memory kept by an adapter for its backward pass besides the input and the low-rank product.
double variant_keeps(const Counting& c, const Layer& layer, double rows) {
  const lora::AdapterMemory& adapter = c.trains.adapter;
  if (adapter.kept == nullptr || !c.trains.adapted(layer.name)) return 0;
  return rows * c.types.compute * adapter.kept(layer.in, layer.out, c.trains.drops());
}

/// Memory kept besides the input.
double adapter_keeps(const Counting& c, const Layer& layer, double rows) {
  const double product =
      c.trains.adapted(layer.name)
          ? rows * static_cast<double>(c.trains.options.of(layer.name).rank) * c.types.compute
          : 0;
  return product + variant_keeps(c, layer, rows);
}

/// A sequence of transformer blocks.
struct Stack {
  family::Tower tower;
  std::string unit, part;                                // name of the units, and their part
  double width = 0, attention = 0, head = 0, inner = 0;  // attention: all heads
  double heads = 0, kv_heads = 0;
  double tokens = 0, kept = 0;  // kept: tokens after the last block's attention
  double attended = 0;          // tokens in attention
  double stream = 4;            // bytes per element of the residual stream
  bool joined = false;          // attention outputs of several sequences are concatenated by a copy
  bool gates = false;           // attention is multiplied by a gate
  const llama::DeltaConfig* delta = nullptr;     // of a gated delta rule instead of attention
  const llama::ExpertConfig* experts = nullptr;  // instead of an MLP
};

/// Whether attention over all sequences of a pass is one kernel.
bool fused_sequences(const PassTypes& types) { return types.gpu && types.compute == 2; }

bool is_gated(const Stack& stack) { return stack.tower.mlp_in.size() == 2; }

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
  const double wide = t.widens ? 4 : t.compute;
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
  if (t.widens && graph) saved += b.attended * s.attention * t.compute;
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

/// `reached`: the block's input needs a gradient.
MemoryUnit block_unit(const Counting& c, const Stack& s, int64_t index, bool reached) {
  const PassTypes& t = c.types;
  const Block b = make_block(s, index);
  const double compute = t.compute, d = s.width, wide = t.widens ? 4 : compute;
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
  if (unit.recomputed) {  // the output, and in the second half the output's gradient
    const double output = b.kept * d * s.stream;
    unit.backward += output;
    unit.second += 2 * output;
  }
  if (unit.recomputed || !graph) {  // nothing is kept; norms and sums stay to the end
    unit.forward =
        std::max(b.tokens * d * (s.stream + t.norm) + b.attended * mixing_width(s) * wide,
                 b.kept * d * (3 * s.stream + 2 * t.norm) + mlp_forward(c, s, b, /*keeps=*/false)) +
        copy + (graph ? 0 : unit.input);
  }
  return unit;
}

/// Returns whether the block's output needs a gradient; `reached`: the input does.
bool add_block(const Counting& c, const Stack& stack, int64_t index, std::vector<MemoryUnit>& units,
               bool reached) {
  units.push_back(block_unit(c, stack, index, reached));
  return reached || units.back().gradients > 0;
}

/// The input of the first block: the pixels as patches, and their embeddings.
MemoryUnit patch_unit(const Counting& c, const Stack& s) {
  const double pixels = static_cast<double>(c.shape.values),
               embeddings = s.tokens * s.width * s.stream;
  MemoryUnit unit{.name = "vision patches", .part = s.part};
  if (c.trains.whole(family::kVision)) unit.saved = pixels * c.types.compute;
  unit.early = unit.saved;
  // The pixels in the order of the patches, and their copies for the product.
  const double compute = c.types.compute < 4 ? c.types.compute : 0, wide = c.types.widens ? 4 : 0;
  unit.forward = (4 + compute + wide) * pixels + 2 * embeddings + wide * s.tokens * s.width;
  return unit;
}

/// The vision tower's blocks that run; returns whether their output needs a gradient.
bool add_vision(const Counting& c, std::vector<MemoryUnit>& units) {
  Stack stack = make_stack(c.trains.layout.vision, "vision layer ", "vision tower");
  if (c.shape.images == 0) stack.tower.count = 0;
  stack.tokens = stack.kept = stack.attended = static_cast<double>(c.shape.tower);
  stack.stream = c.types.vision_stream;
  stack.joined = stack.tower.windows && !fused_sequences(c.types);
  if (c.shape.images > 0) units.push_back(patch_unit(c, stack));
  bool reached = c.trains.whole(family::kVision);
  for (int64_t i = 0; i < stack.tower.count; ++i) reached = add_block(c, stack, i, units, reached);
  return reached;
}

bool add_projector(const Counting& c, std::vector<MemoryUnit>& units, bool reached) {
  const auto positions = static_cast<double>(c.shape.placed),
             d = static_cast<double>(c.config.text.hidden);
  const double compute = c.types.compute;
  std::vector<Layer> layers;
  for (const family::ProjectorShape::Layer& layer : c.trains.layout.projector.layers) {
    layers.push_back({layer.name, static_cast<double>(layer.in), static_cast<double>(layer.out)});
  }
  MemoryUnit unit{.name = "projector", .part = "projector"};
  unit.gradients = 4 * c.trains.elements_under(family::kProjector);
  const bool graph = reached || unit.gradients > 0;
  double inner = 0;  // elements per position before each activation
  for (const Layer& layer : layers) {
    if (c.trains.keeps_input(layer.name)) unit.saved += positions * layer.in * compute;
    unit.saved += adapter_keeps(c, layer, positions);
    if (&layer != &layers.back()) inner += layer.out;
  }
  if (graph) unit.saved += positions * inner * compute;
  const Layer& last = layers.back();
  const double copy = weight_copy(c, last), wide = positions * (last.in + d) * compute;
  unit.forward =
      wide + static_cast<double>(c.shape.rows * c.shape.longest) * d * c.types.stream + copy;
  unit.early = unit.saved;
  unit.backward =
      graph ? wide + copy + (c.trains.whole(last.name) ? last.in * d * (compute + 4) : 0) : 0;
  units.push_back(std::move(unit));
  return graph;
}

bool add_decoder(const Counting& c, std::vector<MemoryUnit>& units, bool reached) {
  // For all layers' attention, until the end of the pass.
  const double masks = static_cast<double>(c.shape.masked) * c.types.compute;
  if (masks > 0) {
    units.push_back({.name = "attention masks", .part = "decoder layers"});
    units.back().saved = units.back().early = masks;
    units.back().forward = masks;
  }
  const llama::LlamaConfig& text = c.config.text;
  const auto stack_of = [&](const family::Tower& tower) {
    Stack stack = make_stack(tower, "decoder layer ", "decoder layers");
    stack.tower.count = text.layers;
    stack.tokens = static_cast<double>(c.shape.rows * c.shape.longest);
    stack.kept = static_cast<double>(c.shape.supervised);
    stack.attended = static_cast<double>(c.shape.attended);
    stack.joined = c.shape.samples > c.shape.rows && !fused_sequences(c.types);
    stack.stream = c.types.stream;
    const int64_t first = tower.numbers.empty() ? 0 : tower.numbers.front();
    if (text.recurrent_at(first)) stack.delta = &text.delta;
    stack.gates = text.gated_attention && stack.delta == nullptr;
    if (tower.sparse) stack.experts = &text.experts;
    // The load balancing loss is of all positions, also in the last layer.
    if (text.sparse_at(text.layers - 1) && balance_weight(c.trains.recipe, text) != 0)
      stack.kept = stack.tokens;
    return stack;
  };
  std::map<int64_t, Stack> stacks;  // by layer
  for (const family::Tower& tower : c.trains.layout.decoder) {
    const Stack stack = stack_of(tower);
    for (const int64_t layer : tower.numbers) stacks.emplace(layer, stack);
    for (int64_t i = 0; tower.numbers.empty() && i < text.layers; ++i) stacks.emplace(i, stack);
  }
  reached = reached || c.trains.whole(family::kDecoder);
  for (const auto& [layer, stack] : stacks) reached = add_block(c, stack, layer, units, reached);
  return reached;
}

/// Final norm and LM head, in chunks of rows unless the head has an adapter.
void add_head(const Counting& c, std::vector<MemoryUnit>& units, bool reached) {
  const PassTypes& t = c.types;
  const std::string name =
      c.config.text.tie_embeddings ? "language_model.model.embed_tokens" : "language_model.lm_head";
  const auto kept = static_cast<double>(c.shape.supervised),
             d = static_cast<double>(c.config.text.hidden);
  const auto vocab = static_cast<double>(c.config.text.vocab);
  const double chunk =
      std::min(kept, static_cast<double>(ops::token_logprobs_rows(c.config.text.vocab, t.gpu)));
  MemoryUnit unit{.name = "LM head", .part = "LM head"};
  const bool whole = c.trains.whole(name), graph = reached || whole;
  const double logits = chunk * vocab * t.compute;  // their gradient is computed in place
  const bool copies = t.widens || (whole ? t.compute != 4 : t.casts);
  const double pieces =
      copies ? std::min(kWidenRows, vocab) * (d + chunk) * (t.compute + (t.widens ? 4 : 0)) : 0;
  if (graph) unit.saved = kept * d * (t.stream + t.compute) + 4 * kept;
  unit.forward = kept * d * (t.norm + (t.norm == t.compute ? 0 : t.compute)) + logits + pieces +
                 chunk * d * t.compute;
  unit.backward = graph ? kept * d * (t.stream + t.compute) : 0;
  if (whole)
    unit.backward +=
        logits + pieces +
        4 * vocab * d;  // the weight's gradient is summed in addition to the stored one
  if (c.trains.adapted(name)) {
    unit.saved += kept * (vocab * 4 + d * t.compute) + variant_keeps(c, {name, d, vocab}, kept);
    unit.forward = kept * vocab * (t.compute + (t.compute == 4 ? 0 : 4));
    unit.backward = kept * vocab * (4 + t.compute + (t.compute == 4 ? 0 : 4));
  }
  unit.early = unit.saved;
  unit.gradients = 4 * (c.trains.elements_under("language_model.lm_head") +
                        c.trains.elements_under("language_model.model.norm."));
  units.push_back(std::move(unit));
}

}  // namespace

PassTypes pass_types(const RunSettings& settings) {
  const auto bytes = [](at::ScalarType type) {
    return static_cast<double>(c10::elementSize(type));
  };
  const at::ScalarType compute = settings.precision.compute;
  const auto stream = [&](bool whole) {
    return whole || compute == at::kFloat ? 4.0 : bytes(settings.base_dtype);
  };
  const Trains trains(settings);
  PassTypes types{.compute = bytes(compute),
                  .weight = bytes(settings.base_dtype),
                  .casts = settings.base_dtype != compute};
  types.stream = stream(trains.whole("language_model."));
  types.vision_stream = stream(trains.whole(family::kVision));
  types.norm = compute == at::kBFloat16 ? 2.0 : types.stream;
  types.widens = ops::widens_products(compute, settings.device);
  types.gpu = !settings.device.is_cpu();
  return types;
}

TrainedSize trained_size(const RunSettings& settings) {
  const Trains trains(settings);
  const RulePtr rule = make_rule(settings.recipe.optim);
  const double bytes = pass_types(settings).compute;
  const bool shadowed = bytes == 2 && trains.adapter.low_rank_only;
  const std::set<std::string> tables = lora::embedding_tables(*trains.shapes);
  TrainedSize size = trains.base;
  for (const auto& [name, sizes] : trains.trainables) {
    const int64_t elements = c10::multiply_integers(sizes);
    size.trained += static_cast<double>(elements);
    if (!name.starts_with("language_model.")) size.before_decoder += static_cast<double>(elements);
    if (trains.variant.changes_weight && !trains.whole(name))
      size.starts += 4.0 * static_cast<double>(elements);
    if (shadowed && !trains.whole(name)) size.shadows += bytes * static_cast<double>(elements);
    if (trains.whole(name)) size.frozen -= static_cast<double>(elements);
    size.moments += moment_bytes(*rule, sizes, tables.contains(name));
    size.update = std::max(size.update, rule->temporary_bytes(sizes));
  }
  return size;
}

std::vector<MemoryUnit> memory_units(const RunSettings& settings, const PassShape& shape) {
  const Trains trains(settings);
  const Counting counting{.config = settings.config,
                          .trains = trains,
                          .types = pass_types(settings),
                          .shape = shape,
                          .every = recompute_every(settings.recipe.train.activation_checkpointing),
                          .storage = settings.storage,
                          .fp8_products = ops::has_fp8_products(settings.device)};
  std::vector<MemoryUnit> units;
  bool reached = add_vision(counting, units);
  reached = add_projector(counting, units, reached);
  reached = add_decoder(counting, units, reached);
  add_head(counting, units, reached);
  return units;
}

}  // namespace lft::train
