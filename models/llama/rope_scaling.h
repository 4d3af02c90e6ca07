// Scaling of rotary angles for longer contexts, as in modeling_rope_utils of transformers: linear,
// llama3 (Grattafiori et al. 2024), dynamic (NTK-aware, bloc97 and emozilla 2023), YaRN (Peng et
// al. 2023), LongRoPE (Ding et al. 2024).
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "models/base/config_fields.h"

namespace lft::llama {

struct RopeScaling {
  std::string type = "default";  // default, linear, dynamic, yarn, longrope, llama3
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4;
  int64_t original_max_positions = 8192;  // dynamic: max_position_embeddings
  double attention_factor = 1;            // multiplies cosines and sines (yarn, longrope)
  double beta_fast = 32, beta_slow = 1;   // yarn
  bool truncate = true;
  std::vector<double> short_factor = {}, long_factor = {};  // longrope: per pair of a head

  /// Whether the angles depend on the length of the sequence.
  bool follows_length() const { return type == "dynamic" || type == "longrope"; }
};

/// The source of the scaling, and its decoder.
struct RopeSource {
  const ConfigFields& rope;  // rope_scaling, rope_parameters or a child of it
  const ConfigFields& text;
  int64_t head_dim, max_positions;
  double theta;
};

/// Reads `rope_type` (default: to->type) and the fields of that type. Throws kInput naming a field
/// that is missing or out of range.
void parse_rope_scaling(const RopeSource& source, RopeScaling* to);

/// Inverse frequencies, float32 [e / 2] for `head_dim`, bitwise as in transformers, for a sequence
/// whose positions are below `length` (used only if follows_length()).
at::Tensor scaled_frequencies(const RopeScaling& scaling, double theta, int64_t head_dim,
                              int64_t length);

/// The part of a fingerprint: only fields that affect the type are included.
std::string fingerprint_of_scaling(const RopeScaling& scaling);

}  // namespace lft::llama
