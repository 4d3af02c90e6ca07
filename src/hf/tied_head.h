// The embedding and the LM head among the stored tensors of a model whose config.json ties the two.
#pragma once
#include <string>

#include "src/hf/model_dir.h"

namespace lft::hf {

/// Canonical names of the two modules.
inline const std::string kEmbedding = "language_model.model.embed_tokens";
inline const std::string kHead = "language_model.lm_head";

/// As in transformers 5: an LM head that is stored alone is also the embedding; one that equals the
/// stored embedding is tied to it; one that differs is a separate tensor, with a warning, and
/// dir.config is changed accordingly. Reads both tensors if both are stored.
void settle_tied_head(ModelDir& dir);

}  // namespace lft::hf
