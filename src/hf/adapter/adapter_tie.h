// Handles an adapter that separates the LM head from the embedding that its base ties it to.
#pragma once
#include "src/hf/adapter/adapter.h"

namespace lft::hf {

/// Whether base and adapter together have an LM head that differs from the embedding, although the
/// base ties them: as in PEFT, an adapter changes only what it contains. Throws kInput if the
/// adapter requests the tie and contains only one of the two, or two that differ.
bool unties(const AdapterDir& dir, const family::ModelConfig& base);

/// If the adapter unties the base, makes the head of `base` a separate tensor, read from the
/// embedding's file position, and returns true. The fingerprint of the base changes then.
bool untie(const AdapterDir& dir, ModelDir& base);

}  // namespace lft::hf
