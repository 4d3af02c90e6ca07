#include "src/train/memory/memory_units.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "kernels/nf4/nf4.h"
#include "models/lora/registry.h"
#include "models/ops/weight/fp8.h"
#include "src/train/inputs/model_shapes.h"
#include "src/train/optim/rules.h"

namespace lft::train {
namespace {

constexpr double kChunkLogits = 1 << 23, kWidenRows = 4096;  // of models/ops/token_logprobs

/// Of the codes of a weight [out, in].
double bytes_of_codes(ops::BaseStorage storage, double out, double in) {
  if (storage == ops::BaseStorage::kFp8) return 2 * out * in + 4 * (out + in);
  return out * in * (0.5 + 1.0 / kNf4Block + 4.0 / (kNf4Block * kNf4ScaleBlock));
}

/// What of a model is trained, by name.
class Trains {
 public:
  explicit Trains(const RunSettings& settings)
      : recipe_(settings.recipe), shapes_(shape_only(settings.config)) {
    for (const lora::LinearSite& site : adapted_sites(recipe_, *shapes_, nullptr)) {
      adapted_.insert(site.name);
      const at::Tensor& weight = site.layer->weight;
      for (const lora::AdapterTensor& tensor : variant_.tensors) {
        const std::vector<int64_t> shape =
            tensor.shape(weight.size(0), weight.size(1), recipe_.lora.rank);
        trainables_.push_back({site.name + "." + tensor.name, shape});
      }
    }
    for (const auto& parameter : shapes_->named_parameters()) {
      const auto elements = static_cast<double>(parameter.value().numel());
      elements_ += elements;
      if (settings.storage != ops::BaseStorage::kDense && in_decoder_layer(parameter.key()) &&
          parameter.value().dim() == 2) {
        coded_ += elements;
        coded_bytes_ +=
            bytes_of_codes(settings.storage, static_cast<double>(parameter.value().size(0)),
                           static_cast<double>(parameter.value().size(1)));
      }
      if (whole(parameter.key()))
        trainables_.push_back({parameter.key(), parameter.value().sizes().vec()});
    }
  }
  double elements() const { return elements_; }  // of the model without adapters
  double coded() const { return coded_; }        // of them, those that are codes
  double coded_bytes() const { return coded_bytes_; }
  bool whole(const std::string& name) const { return trains_whole(recipe_, name); }
  bool adapted(const std::string& name) const { return adapted_.contains(name); }
  bool keeps_input(const std::string& name) const { return whole(name) || adapted(name); }
  double rank() const { return static_cast<double>(recipe_.lora.rank); }
  /// Elements of the trainables whose names begin so.
  double elements_under(const std::string& prefix) const {
    double sum = 0;
    for (const auto& [name, sizes] : trainables_)
      sum += name.starts_with(prefix) ? static_cast<double>(c10::multiply_integers(sizes)) : 0;
    return sum;
  }
  const lora::AdapterMemory& adapter() const { return variant_.memory; }
  bool keeps_start() const { return variant_.changes_weight; }
  /// Those of an adapter, and a parameter that is trained whole.
  const std::vector<std::pair<std::string, std::vector<int64_t>>>& trainables() const {
    return trainables_;
  }
  /// Of the low-rank product of `rows` rows that the backward pass needs.
  double low_rank(const std::string& name, double rows, double width) const {
    return adapted(name) ? rows * rank() * width : 0;
  }
  bool drops() const { return recipe_.lora.dropout > 0; }

 private:
  const recipe::Recipe& recipe_;
  const lora::Variant& variant_ = lora::find_variant(recipe_.lora.variant);
  llava::Llava shapes_;
  std::set<std::string> adapted_;
  std::vector<std::pair<std::string, std::vector<int64_t>>> trainables_;  // their shapes
  double elements_ = 0, coded_ = 0, coded_bytes_ = 0;
};

struct Counting {
  const llava::LlavaConfig& config;
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

/// A copy in the compute dtype of the weight of a layer, where it is stored in another; FP16 on a
/// CPU widens both operands, and so do products of FP8 codes on a device that has none.
double weight_copy(const Counting& c, const std::string& name, double in, double out) {
  if (c.in_fp8(name)) return c.fp8_products ? 0 : in * out * 4;
  const double stored = c.trains.whole(name) ? 4 : c.coded(name) ? 0 : c.types.weight;
  const double lengths = c.trains.adapter().makes_weight && c.trains.adapted(name)
                             ? in * out * (stored == 4 ? 4 : 8)
                             : 0;  // W + B A in FP32
  const bool casts = c.trains.whole(name) ? c.types.compute != 4 : c.coded(name) || c.types.casts;
  return std::max(lengths,
                  (casts ? in * out * c.types.compute : 0) + (c.types.widens ? in * out * 4 : 0));
}

/// What an adapter keeps for its backward pass beside the input and the low-rank product.
double variant_keeps(const Counting& c, const std::string& name, double rows, double in,
                     double out) {
  const lora::AdapterMemory& adapter = c.trains.adapter();
  if (adapter.kept == nullptr || !c.trains.adapted(name)) return 0;
  return rows * c.types.compute * adapter.kept(in, out, c.trains.drops());
}

struct Block {
  std::string name, q, k, v, o, in1, in2, out;  // in2: of a gated MLP
  double width, attention, head, inner;         // attention: all heads together
  int64_t index = 0;
};

/// A transformer block over `tokens` tokens, of which `kept` go on after its attention. `reached`:
/// its input needs a gradient.
MemoryUnit block_unit(const Counting& c, const Block& b, double tokens, double kept, double stream,
                      bool reached) {
  const PassTypes& t = c.types;
  const double compute = t.compute, d = b.width, wide = t.widens ? 4 : compute, norm = t.norm;
  const auto keeps = [&](const std::string& name) { return c.trains.keeps_input(name); };
  const bool gated = !b.in2.empty();
  const bool again =
      gated && norm == compute &&
      c.trains.adapter().low_rank_only;  // a decoder layer makes normed inputs of the stream again
  const auto copies = [&](int64_t users) {
    return users == 0 ? 0.0 : norm == compute ? 1.0 : static_cast<double>(users);
  };
  MemoryUnit unit;
  unit.input = tokens * d * stream;
  const int64_t qkv = keeps(b.q) + keeps(b.k) + keeps(b.v),
                mlp_in = keeps(b.in1) + (gated && keeps(b.in2));
  bool graph = reached || qkv > 0;
  double early =
      reached ? tokens * (d * stream + 4) : 0;  // the norm's input is the residual stream
  early +=
      again ? (qkv > 0 && !reached ? tokens * d * stream : 0) : copies(qkv) * tokens * d * compute;
  for (const std::string& name : {b.q, b.k, b.v}) {
    early +=
        c.trains.low_rank(name, tokens, compute) + variant_keeps(c, name, tokens, d, b.attention);
  }
  if (graph) early += tokens * (4 * b.attention * wide + 4 * b.attention / b.head);
  if (t.widens && graph) early += tokens * b.attention * compute;
  if (keeps(b.o) && (!graph || kept < tokens)) early += kept * b.attention * compute;
  early += c.trains.low_rank(b.o, kept, compute) + variant_keeps(c, b.o, kept, b.attention, d);
  graph |= keeps(b.o);
  double late = graph ? kept * (d * stream + 4) : 0;
  late +=
      again ? (mlp_in > 0 && !graph ? kept * d * stream : 0) : copies(mlp_in) * kept * d * compute;
  late += c.trains.low_rank(b.in1, kept, compute) + variant_keeps(c, b.in1, kept, d, b.inner);
  graph |= mlp_in > 0;
  if (gated)
    late += c.trains.low_rank(b.in2, kept, compute) + variant_keeps(c, b.in2, kept, d, b.inner);
  if (graph || keeps(b.out))
    late += kept * b.inner * compute * 2;  // gate and up; or before and after the activation
  if (!gated && !keeps(b.out)) late -= graph ? kept * b.inner * compute : 0;
  late += c.trains.low_rank(b.out, kept, compute) + variant_keeps(c, b.out, kept, b.inner, d);
  if (gated && !c.trains.adapter().low_rank_only && keeps(b.out))
    late += kept * b.inner * compute;  // the product, which a low-rank update makes again
  graph |= keeps(b.out);
  unit.early = early;
  unit.saved = early + late;
  const double dropped = c.trains.drops() ? kept * b.inner * compute : 0;
  const double copy = weight_copy(c, b.in1, d, b.inner);
  const double gradient = kept * d * (stream + (stream == compute ? 0 : compute));
  const double inner = kept * b.inner * compute;
  unit.backward = graph ? gradient + std::max((gated ? 3 : 2) * inner, inner + dropped) + copy : 0;
  unit.second = graph ? tokens * (d * (stream + norm) + 4 * b.attention * wide) +
                            weight_copy(c, b.q, d, b.attention)
                      : 0;
  const bool fp8 = c.in_fp8(b.in1);
  if (t.widens || fp8) unit.backward += kept * (d + b.inner) * (fp8 && c.fp8_products ? 1 : 4);
  unit.forward = std::max(tokens * (d * (stream + norm) + 3 * b.attention * wide),
                          kept * (d * (stream + norm) + (gated ? 3 : 2) * b.inner * compute)) +
                 copy;
  if (c.trains.whole(b.in1))
    unit.backward += d * b.inner * (compute + 4);  // a weight's gradient before it is one of FP32
  unit.gradients = 4 * c.trains.elements_under(b.name + ".");
  unit.recomputed = c.every > 0 && b.index % c.every == 0 && graph;
  return unit;
}

Block clip_block(const clip::ClipConfig& config, int64_t index) {
  const std::string name = "vision_tower.vision_model.encoder.layers." + std::to_string(index);
  const auto d = static_cast<double>(config.hidden);
  return {.name = name,
          .q = name + ".self_attn.q_proj",
          .k = name + ".self_attn.k_proj",
          .v = name + ".self_attn.v_proj",
          .o = name + ".self_attn.out_proj",
          .in1 = name + ".mlp.fc1",
          .in2 = "",
          .out = name + ".mlp.fc2",
          .width = d,
          .attention = d,
          .head = d / static_cast<double>(config.heads),
          .inner = static_cast<double>(config.intermediate),
          .index = index};
}

Block llama_block(const llama::LlamaConfig& config, int64_t index) {
  const std::string name = "language_model.model.layers." + std::to_string(index);
  return {.name = name,
          .q = name + ".self_attn.q_proj",
          .k = name + ".self_attn.k_proj",
          .v = name + ".self_attn.v_proj",
          .o = name + ".self_attn.o_proj",
          .in1 = name + ".mlp.gate_proj",
          .in2 = name + ".mlp.up_proj",
          .out = name + ".mlp.down_proj",
          .width = static_cast<double>(config.hidden),
          .attention = static_cast<double>(config.heads * config.head_dim),
          .head = static_cast<double>(config.head_dim),
          .inner = static_cast<double>(config.intermediate),
          .index = index};
}

/// The vision tower's blocks that run; true where what comes out of them needs a gradient.
bool add_vision(const Counting& c, std::vector<MemoryUnit>& units) {
  const clip::ClipConfig& config = c.config.vision;
  int64_t blocks = 0;
  for (const int64_t layer : c.config.vision_feature_layers)
    blocks = std::max(blocks, layer < 0 ? layer + config.layers + 1 : layer);
  const auto positions = static_cast<double>(c.shape.images * (config.grid() * config.grid() + 1));
  bool reached = c.trains.whole("vision_tower.");
  for (int64_t i = 0; i < blocks && c.shape.images > 0; ++i) {
    MemoryUnit unit =
        block_unit(c, clip_block(config, i), positions, positions, c.types.vision_stream, reached);
    reached |= unit.gradients > 0;
    unit.name = "vision layer " + std::to_string(i);
    unit.part = "vision tower";
    units.push_back(std::move(unit));
  }
  return reached;
}

bool add_projector(const Counting& c, std::vector<MemoryUnit>& units, bool reached) {
  const std::string name = "multi_modal_projector", first = name + ".linear_1",
                    second = name + ".linear_2";
  const auto positions = static_cast<double>(c.shape.images * c.config.image_positions()),
             d = static_cast<double>(c.config.text.hidden);
  const auto in = static_cast<double>(c.config.vision.hidden) *
                  static_cast<double>(c.config.vision_feature_layers.size());
  const double compute = c.types.compute;
  MemoryUnit unit{.name = "projector", .part = "projector"};
  unit.gradients = 4 * c.trains.elements_under(name + ".");
  const bool graph = reached || unit.gradients > 0;
  if (c.trains.keeps_input(first)) unit.saved += positions * in * compute;
  if (graph) unit.saved += positions * d * compute;  // before the activation
  if (c.trains.keeps_input(second)) unit.saved += positions * d * compute;
  unit.saved +=
      c.trains.low_rank(first, positions, compute) + c.trains.low_rank(second, positions, compute);
  unit.saved +=
      variant_keeps(c, first, positions, in, d) + variant_keeps(c, second, positions, d, d);
  const double copy = weight_copy(c, second, d, d);
  unit.forward = 2 * positions * d * compute +
                 static_cast<double>(c.shape.rows * c.shape.longest) * d * c.types.stream + copy;
  unit.early = unit.saved;
  unit.backward = graph ? 2 * positions * d * compute + copy +
                              (c.trains.whole(second) ? d * d * (compute + 4) : 0)
                        : 0;
  units.push_back(std::move(unit));
  return graph;
}

bool add_decoder(const Counting& c, std::vector<MemoryUnit>& units, bool reached) {
  const llama::LlamaConfig& config = c.config.text;
  const auto tokens = static_cast<double>(c.shape.rows * c.shape.longest),
             kept = static_cast<double>(c.shape.supervised);
  reached |= c.trains.whole("language_model.");
  for (int64_t i = 0; i < config.layers; ++i) {
    MemoryUnit unit = block_unit(c, llama_block(config, i), tokens,
                                 i + 1 == config.layers ? kept : tokens, c.types.stream, reached);
    reached |= unit.gradients > 0;
    unit.name = "decoder layer " + std::to_string(i);
    unit.part = "decoder layers";
    units.push_back(std::move(unit));
  }
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
  const double chunk = std::min(kept, std::max(1.0, std::floor(kChunkLogits / vocab)));
  MemoryUnit unit{.name = "LM head", .part = "LM head"};
  const bool whole = c.trains.whole(name), graph = reached || whole;
  const double logits = t.gpu ? chunk * vocab * (t.compute + 8) : chunk * vocab * t.compute;
  const bool copies = t.widens || (whole ? t.compute != 4 : t.casts);
  const double pieces =
      copies ? std::min(kWidenRows, vocab) * (d + chunk) * (t.compute + (t.widens ? 4 : 0)) : 0;
  if (graph) unit.saved = kept * d * (t.stream + t.compute) + 4 * kept;
  unit.forward = kept * d * (t.norm + (t.norm == t.compute ? 0 : t.compute)) + logits + pieces +
                 chunk * d * t.compute;
  unit.backward = graph ? kept * d * (t.stream + t.compute) : 0;
  if (whole)
    unit.backward += logits + pieces +
                     4 * vocab * d;  // the weight's gradient is summed up beside the one that stays
  if (c.trains.adapted(name)) {
    unit.saved += kept * (vocab * 4 + d * t.compute) + variant_keeps(c, name, kept, d, vocab);
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
  types.vision_stream = stream(trains.whole("vision_tower."));
  types.norm = compute == at::kBFloat16 ? 2.0 : types.stream;
  types.widens = compute == at::kHalf && settings.device.is_cpu();
  types.gpu = !settings.device.is_cpu();
  return types;
}

TrainedSize trained_size(const RunSettings& settings) {
  const Trains trains(settings);
  const RulePtr rule = make_rule(settings.recipe.optim);
  const double bytes = pass_types(settings).compute;
  const bool shadowed = bytes == 2 && trains.adapter().low_rank_only;
  TrainedSize size{
      .frozen = trains.elements(), .coded = trains.coded(), .coded_bytes = trains.coded_bytes()};
  for (const auto& [name, sizes] : trains.trainables()) {
    const int64_t elements = c10::multiply_integers(sizes);
    size.trained += static_cast<double>(elements);
    if (!name.starts_with("language_model.")) size.before_decoder += static_cast<double>(elements);
    if (trains.keeps_start() && !trains.whole(name))
      size.starts += 4.0 * static_cast<double>(elements);
    if (shadowed && !trains.whole(name)) size.shadows += bytes * static_cast<double>(elements);
    if (trains.whole(name)) size.frozen -= static_cast<double>(elements);
    size.moments += moment_bytes(*rule, sizes);
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
