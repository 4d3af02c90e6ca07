#include "models/family/layout.h"

#include "models/family/family.h"
#include "models/family/model.h"
#include "models/family/scopes.h"

namespace lft::family {

ModelLayout read_layout(const ModelImpl& model) {
  VisionFacts facts = model.config.family->vision(model.config);
  ModelLayout layout;
  std::vector<TensorSpec> decoder;
  for (const auto& parameter : model.named_parameters())
    (parameter.key().starts_with(kDecoder) ? decoder : layout.tensors)
        .push_back({parameter.key(), parameter.value().sizes().vec()});
  layout.projector = read_projector(layout.tensors);
  layout.vision = read_tower(layout.tensors, facts.blocks, facts.unused_modules);
  layout.decoder = read_tower(decoder,
                              {.label = "decoder",
                               .layers = "language_model.model.layers.",
                               .count = model.config.text.layers,
                               .head_dim = model.config.text.head_dim},
                              {});
  layout.tensors.insert(layout.tensors.end(), decoder.begin(), decoder.end());
  layout.unused_modules = std::move(facts.unused_modules);
  layout.unused_reason = std::move(facts.unused_reason);
  return layout;
}

}  // namespace lft::family
