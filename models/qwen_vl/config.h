// The config.json of a Qwen2-VL, a Qwen2.5-VL, a Qwen3-VL or a Qwen3.5, the last two also as
// mixtures of experts, without the decoder's fields, in old and new spellings, with the defaults of
// transformers. Plain data.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "models/family/config.h"

namespace lft::qwen_vl {

/// PEFT saves fully fine-tuned parts of the tower by names of blocks and mergers
/// (modules_of_scope), which are listed up to these numbers; published models have 32 and 3.
constexpr int64_t kMostBlocks = 64, kMostDeepBlocks = 3;

enum class Generation { k2, k2_5, k3, k3_5 };

/// A generation, and whether its decoder is a mixture of experts.
struct Kind {
  Generation generation = Generation::k2_5;
  bool experts = false;
};

/// "qwen2_vl" and so on, as in config.json.
std::string model_type_of(Kind kind);

struct VisionConfig {
  Generation generation = Generation::k2_5;
  int64_t depth = 32, hidden = 3584, intermediate = 3420, heads = 16, patch = 14, merge = 2,
          out = 3584;
  double rope_theta = 10000;
  std::string activation = "silu";
  // Qwen2.5-VL only.
  int64_t window = 112;  // in pixels
  std::vector<int64_t> full_blocks = {7, 15, 23, 31};
  // Qwen3-VL and Qwen3.5 only.
  int64_t positions = 2304;                        // learned, on a square grid
  std::vector<int64_t> deep_blocks = {8, 16, 24};  // none in Qwen3.5

  int64_t head_dim() const { return hidden / heads; }
  int64_t merged() const { return hidden * merge * merge; }  // features of merged patches
  int64_t side() const { return patch * merge; }             // pixels per side of a position
  /// RMSNorms, SwiGLU and windows, instead of LayerNorms and two linear layers.
  bool gated() const { return generation == Generation::k2_5; }
  /// Learned positions, biases of patches, and features for the decoder's first layers if there are
  /// deep_blocks.
  bool deep() const { return generation == Generation::k3 || generation == Generation::k3_5; }
};

struct QwenVlFields : family::FamilyFields {
  VisionConfig vision;
};

/// The fields of a config that this family parsed.
const VisionConfig& vision_of(const family::ModelConfig& config);

/// Throws kInput naming the field for anything out of range, or a part of another generation.
/// `where` is the file's path for the message.
family::ModelConfig parse_qwen_vl(Kind kind, const nlohmann::json& config,
                                  const std::string& where);

}  // namespace lft::qwen_vl
