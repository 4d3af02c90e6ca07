// An LM head that an adapter separates from the embedding that its base ties it to.
#pragma once
#include "src/hf/adapter/adapter.h"

namespace lft::hf {

/// Whether base and adapter together have an LM head that is not the embedding, although the base
/// ties them: as in PEFT, an adapter changes only what it contains. kInput where the adapter asks
/// for the tie and contains one of the two, or two that differ.
bool unties(const AdapterDir& dir, const family::ModelConfig& base);

/// Where the adapter unties the base, its head becomes a separate tensor, read from the
/// embedding's place. Returns whether it does. The base's fingerprint is another one then.
bool untie(const AdapterDir& dir, ModelDir& base);

}  // namespace lft::hf
