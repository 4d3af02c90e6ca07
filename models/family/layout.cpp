#include "models/family/layout.h"

#include "models/family/family.h"
#include "models/family/model.h"
#include "models/family/scopes.h"

namespace lft::family {
namespace {

void read_decoder(const llama::LlamaConfig& text, const std::vector<TensorSpec>& tensors,
                  ModelLayout& layout) {
  TowerFacts facts{.label = "decoder",
                   .layers = "language_model.model.layers.",
                   .count = text.layers,
                   .head_dim = text.head_dim};
  std::vector<int64_t> recurrent;
  for (int64_t layer = 0; layer < text.layers; ++layer)
    (text.recurrent_at(layer) ? recurrent : facts.numbers).push_back(layer);
  if (recurrent.empty()) {
    facts.numbers.clear();
    layout.decoder = read_tower(tensors, facts, {});
    return;
  }
  const auto part = [&](const char* label, const std::vector<int64_t>& numbers, int64_t head_dim) {
    TowerFacts of_part = facts;
    of_part.label = label;
    of_part.count = std::ssize(numbers);
    of_part.numbers = numbers;
    of_part.head_dim = head_dim;
    return read_tower(tensors, of_part, {});
  };
  layout.decoder = part("attention part of the decoder", facts.numbers, text.head_dim);
  layout.recurrent = part("DeltaNet part of the decoder", recurrent, text.delta.value_dim);
}

}  // namespace

ModelLayout read_layout(const ModelImpl& model) {
  VisionFacts facts = model.config.family->vision(model.config);
  ModelLayout layout;
  std::vector<TensorSpec> decoder;
  const CheckpointNames& names = model.config.family->names;
  for (const auto& parameter : model.named_parameters()) {
    const std::string& name = parameter.key();
    (name.starts_with(kDecoder) ? decoder : layout.tensors)
        .push_back({name, parameter.value().sizes().vec(),
                    names.is_expert_weight(name) ? model.config.text.experts.count : 0});
  }
  layout.projector = read_projector(layout.tensors);
  layout.vision = read_tower(layout.tensors, facts.blocks, facts.unused_modules);
  read_decoder(model.config.text, decoder, layout);
  layout.tensors.insert(layout.tensors.end(), decoder.begin(), decoder.end());
  layout.unused_modules = std::move(facts.unused_modules);
  layout.unused_reason = std::move(facts.unused_reason);
  return layout;
}

}  // namespace lft::family
