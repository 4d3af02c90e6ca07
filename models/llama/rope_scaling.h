// How rotary angles are scaled for longer contexts, as transformers' modeling_rope_utils has it:
// linear, llama3 (Grattafiori et al. 2024), dynamic (NTK-aware, bloc97 and emozilla 2023), YaRN
// (Peng et al. 2023), LongRoPE (Ding et al. 2024).
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
  double attention_factor = 1;            // of cosines and sines (yarn, longrope)
  double beta_fast = 32, beta_slow = 1;   // yarn
  bool truncate = true;
  std::vector<double> short_factor = {}, long_factor = {};  // longrope: of each pair of a head

  /// Whether a sequence's angles depend on how long it is.
  bool follows_length() const { return type == "dynamic" || type == "longrope"; }
};

/// Where the scaling is read, and of what decoder.
struct RopeSource {
  const ConfigFields& rope;  // rope_scaling, rope_parameters or a part of it
  const ConfigFields& text;
  int64_t head_dim, max_positions;
  double theta;
};

/// Reads `rope_type`, or where the file has none keeps to->type, and what that type needs. kInput
/// naming the field for what is missing or out of range.
void parse_rope_scaling(const RopeSource& source, RopeScaling* to);

/// float32 [e / 2] of a head of `head_dim`, bit for bit as transformers computes them for a
/// sequence whose positions are below `length` (which counts where follows_length()).
at::Tensor scaled_frequencies(const RopeScaling& scaling, double theta, int64_t head_dim,
                              int64_t length);

/// What the model computes with, for a fingerprint: nothing where a field has no say.
std::string fingerprint_of_scaling(const RopeScaling& scaling);

}  // namespace lft::llama
