#include "src/train/memory/memory_units.h"

#include <algorithm>
#include <map>
#include <set>

#include "models/family/scopes.h"
#include "models/ops/attention/attention.h"
#include "models/ops/core/gemm.h"
#include "models/ops/elementwise/token_logprobs.h"
#include "models/ops/weight/fp8.h"
#include "src/train/inputs/kept_features.h"
#include "src/train/inputs/run_objective.h"
#include "src/train/memory/memory_blocks.h"
#include "src/train/optim/rules.h"

namespace lft::train {
namespace {

constexpr double kWidenRows = 4096;  // from models/ops/token_logprobs

double at_once(int64_t of_pass, int64_t of_row) {
  return static_cast<double>(of_row > 0 ? of_row : of_pass);
}

/// Returns whether the block's output needs a gradient; `reached`: the input does.
bool add_block(const Counting& c, const Stack& stack, int64_t index, std::vector<MemoryUnit>& units,
               bool reached) {
  units.push_back(block_unit(c, stack, index, reached));
  return reached || units.back().gradients > 0;
}

/// The input of the first block: the pixels as patches, and their embeddings.
MemoryUnit patch_unit(const Counting& c, const Stack& s) {
  const double pixels = at_once(c.shape.values, c.shape.row_values),
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
  stack.tokens = stack.kept = stack.attended = at_once(c.shape.tower, c.shape.row_tower);
  stack.stream = c.types.vision_stream;
  stack.joined = stack.tower.windows && !fused_sequences(c.types);
  if (c.shape.images > 0) units.push_back(patch_unit(c, stack));
  bool reached = c.trains.whole(family::kVision);
  for (int64_t i = 0; i < stack.tower.count; ++i) reached = add_block(c, stack, i, units, reached);
  return reached;
}

bool add_projector(const Counting& c, std::vector<MemoryUnit>& units, bool reached) {
  const double positions = at_once(c.shape.placed, c.shape.row_placed);
  const auto d = static_cast<double>(c.config.text.hidden);
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
  const double copy = weight_copy(c, last),
               joined = c.shape.row_placed > 0 ? static_cast<double>(c.shape.placed) * d : 0,
               wide = (positions * (last.in + d) + joined) * compute;
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
  PassTypes types{.compute = bytes(compute),
                  .weight = bytes(settings.base_dtype),
                  .casts = settings.base_dtype != compute};
  types.stream = stream(trains_whole(settings.recipe, "language_model."));
  types.vision_stream = stream(trains_whole(settings.recipe, family::kVision));
  types.norm = compute == at::kBFloat16 ? 2.0 : types.stream;
  types.widens = ops::widens_products(compute, settings.device);
  types.widens_attention = ops::widens_attention(compute, settings.device);
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
    if (!is_of_decoder(name)) size.before_decoder += static_cast<double>(elements);
    if (trains.variant.changes_weight && !trains.whole(name))
      size.starts += 4.0 * static_cast<double>(elements);
    if (shadowed && !trains.whole(name)) size.shadows += bytes * static_cast<double>(elements);
    if (trains.adapter.keeps_lengths && name.ends_with(lora::kLoraB) && !trains.whole(name))
      size.lengths += 4.0 * static_cast<double>(sizes[0]);
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