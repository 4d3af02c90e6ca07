// Which of the stored tensors are the embedding and the LM head of a model whose config.json ties
// the two.
#pragma once
#include <string>

#include "src/hf/model_dir.h"

namespace lft::hf {

/// Canonical names of the modules that a base may tie.
inline const std::string kEmbedding = "language_model.model.embed_tokens";
inline const std::string kHead = "language_model.lm_head";

/// As transformers 5 does: an LM head that is stored alone is the embedding, too; one that equals
/// the stored embedding is tied to it; one that differs is a head of its own, with a warning, and
/// dir.config says so from then on. Reads both tensors where both are stored.
void settle_tied_head(ModelDir& dir);

}  // namespace lft::hf
