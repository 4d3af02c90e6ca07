#include "models/family/layout.h"

#include "models/family/family.h"
#include "models/family/model.h"
#include "models/family/scopes.h"

namespace lft::family {
namespace {

std::vector<Tower> read_decoder(const llama::LlamaConfig& text,
                                const std::vector<TensorSpec>& tensors) {
  std::vector<Tower> towers;
  for (const bool sparse : {false, true}) {
    for (const bool recurrent : {false, true}) {
      TowerFacts facts{
          .label = recurrent ? "DeltaNet part of the decoder" : "attention part of the decoder",
          .layers = "language_model.model.layers.",
          .head_dim = recurrent ? text.delta.value_dim : text.head_dim,
          .sparse = sparse};
      for (int64_t layer = 0; layer < text.layers; ++layer) {
        if (text.recurrent_at(layer) == recurrent && text.sparse_at(layer) == sparse)
          facts.numbers.push_back(layer);
      }
      facts.count = std::ssize(facts.numbers);
      if (facts.count == 0) continue;
      if (facts.count == text.layers) {
        facts.label = "decoder";
        facts.numbers.clear();
      } else if (sparse) {
        facts.label += " with experts";
      }
      towers.push_back(read_tower(tensors, facts, {}));
    }
  }
  return towers;
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
  layout.decoder = read_decoder(model.config.text, decoder);
  layout.tensors.insert(layout.tensors.end(), decoder.begin(), decoder.end());
  layout.unused_modules = std::move(facts.unused_modules);
  layout.unused_reason = std::move(facts.unused_reason);
  return layout;
}

}  // namespace lft::family
