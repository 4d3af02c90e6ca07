#include "models/qwen_vl/config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "models/qwen_vl/qwen_vl_family.h"

namespace lft::qwen_vl {
namespace {

using Json = nlohmann::json;

std::vector<int64_t> parse_blocks(const ConfigFields& vision, const char* key, int64_t high,
                                  const std::vector<int64_t>& silent) {
  const Json* found = vision.find(key);
  if (found == nullptr) return silent;
  if (!found->is_array() || found->size() > static_cast<size_t>(kMaxLayers))
    vision.fail(key, found->dump().substr(0, 80), "numbers of blocks");
  std::vector<int64_t> blocks;
  for (const Json& block : *found) {
    blocks.push_back(vision.checked(key, block, 0, high));
    if (blocks.size() > 1 && blocks.back() <= blocks[blocks.size() - 2])
      vision.fail(key, found->dump().substr(0, 80), "numbers of blocks in rising order");
  }
  return blocks;
}

void parse_windows(const ConfigFields& fields, VisionConfig* v) {
  fields.one_of("hidden_act", {"silu"}, &v->activation);
  fields.integer("window_size", 1, kMaxSide, &v->window);
  if (v->window < v->side())
    fields.fail("window_size", std::to_string(v->window),
                "at least patch_size times spatial_merge_size " + std::to_string(v->side()));
  // Numbers beyond the tower's blocks are ignored.
  v->full_blocks = parse_blocks(fields, "fullatt_block_indexes", kMaxLayers, v->full_blocks);
}

void parse_deepstack(const ConfigFields& fields, int64_t decoder_layers, VisionConfig* v) {
  fields.one_of("hidden_act", known_activations(), &v->activation);
  fields.integer("num_position_embeddings", 1, kMaxPositions, &v->positions);
  if (v->generation == Generation::k3_5) return;
  const char* key = "deepstack_visual_indexes";
  v->deep_blocks = parse_blocks(fields, key, v->depth - 1, v->deep_blocks);
  const int64_t most = std::min(kMostDeepBlocks, decoder_layers);
  if (static_cast<int64_t>(v->deep_blocks.size()) > most)
    fields.fail(key, Json(v->deep_blocks).dump(),
                "at most " + std::to_string(most) + " blocks, one a decoder layer");
  if (!v->deep_blocks.empty() && v->deep_blocks.back() >= v->depth)
    fields.fail(key, Json(v->deep_blocks).dump(),
                "blocks of the tower's " + std::to_string(v->depth));
}

VisionConfig vision_defaults(Generation generation) {
  VisionConfig v;
  v.generation = generation;
  if (v.gated()) return v;
  if (!v.deep()) {
    v.hidden = 1280;
    v.activation = "quick_gelu";
    return v;
  }
  v.depth = 27;
  v.hidden = 1152;
  v.intermediate = 4304;
  v.patch = 16;
  v.activation = "gelu_pytorch_tanh";
  if (generation == Generation::k3_5) v.deep_blocks.clear();
  return v;
}

/// In Qwen2-VL hidden_size is the decoder's.
void parse_sizes(const ConfigFields& fields, const char* hidden, const char* out, VisionConfig* v) {
  fields.integer(hidden, 1, kMaxHidden, &v->hidden);
  fields.integer(out, 1, kMaxHidden, &v->out);
  if (v->gated() || v->deep()) {
    fields.integer("intermediate_size", 1, kMaxIntermediate, &v->intermediate);
    return;
  }
  double ratio = 4;
  fields.number("mlp_ratio", 0, 1024, &ratio);
  v->intermediate = static_cast<int64_t>(static_cast<double>(v->hidden) * ratio);
  if (v->intermediate < 1 || v->intermediate > kMaxIntermediate)
    fields.fail("mlp_ratio", Json(ratio).dump(),
                "a number that makes at most " + std::to_string(kMaxIntermediate) +
                    " features of embed_dim " + std::to_string(v->hidden));
}

VisionConfig parse_vision(const ConfigFields& fields, Kind kind, const llama::LlamaConfig& text) {
  VisionConfig v = vision_defaults(kind.generation);
  const std::string family = model_type_of(kind);
  const bool first = kind.generation == Generation::k2;
  const char *hidden = first ? "embed_dim" : "hidden_size",
             *out = first ? "hidden_size" : "out_hidden_size";
  std::string model_type = family;
  fields.one_of("model_type", {family + "_vision", family}, &model_type);
  fields.integer("depth", 1, kMostBlocks, &v.depth);
  parse_sizes(fields, hidden, out, &v);
  fields.integer("num_heads", 1, kMaxHeads, &v.heads);
  fields.square("patch_size", 1, kMaxSide, &v.patch);
  fields.integer("spatial_merge_size", 1, 64, &v.merge);
  int64_t channels = 3, frames = 2;
  fields.integer("in_channels", 3, 3, &channels);
  fields.integer("in_chans", 3, 3, &channels);
  fields.square("temporal_patch_size", 2, 2, &frames);
  if (v.hidden % v.heads != 0 || v.head_dim() % 4 != 0)
    fields.fail("num_heads", std::to_string(v.heads),
                std::string("a divisor of ") + hidden + " " + std::to_string(v.hidden) +
                    " that leaves heads of a multiple of 4");
  if (v.out != text.hidden)
    fields.fail(out, std::to_string(v.out),
                "the decoder's hidden_size " + std::to_string(text.hidden));
  if (fields.find("rope_parameters") != nullptr) {
    const ConfigFields rope = fields.child("rope_parameters");
    std::string type = "axial";
    rope.one_of("rope_type", {"axial"}, &type);
    rope.number("rope_theta", 0, 1e15, &v.rope_theta);
  }
  if (v.gated()) {
    parse_windows(fields, &v);
  } else if (v.deep()) {
    parse_deepstack(fields, text.layers, &v);
  } else {
    fields.one_of("hidden_act", known_activations(), &v.activation);
  }
  return v;
}

}  // namespace

std::string model_type_of(Kind kind) {
  if (kind.generation == Generation::k2) return "qwen2_vl";
  if (kind.generation == Generation::k2_5) return "qwen2_5_vl";
  return std::string(kind.generation == Generation::k3 ? "qwen3_vl" : "qwen3_5") +
         (kind.experts ? "_moe" : "");
}

const VisionConfig& vision_of(const family::ModelConfig& config) {
  return static_cast<const QwenVlFields&>(*config.own).vision;
}

family::ModelConfig parse_qwen_vl(Kind kind, const Json& config, const std::string& where) {
  const Generation generation = kind.generation;
  const ConfigFields top(config, "", where);
  const bool may_be_flat = generation == Generation::k2 || generation == Generation::k2_5;
  const std::string type = model_type_of(kind);
  family::ModelConfig c;
  c.family = &qwen_vl_family(kind);
  c.image_token = 151655;
  c.bos_token = 151643;
  c.eos_tokens = {151645};
  if (generation == Generation::k3_5) {
    c.image_token = 248056;
    c.bos_token = -1;
    c.eos_tokens.clear();
  }
  top.one_of("model_type", {type}, &c.model_type);
  // Old files of Qwen2-VL and Qwen2.5-VL are flat.
  const Json nothing = Json::object();
  const bool has_text = top.find("text_config") != nullptr;
  const ConfigFields text = has_text      ? top.child("text_config")
                            : may_be_flat ? top
                                          : ConfigFields(nothing, "text_config.", where);
  std::vector<std::string> types = {type + "_text"};
  if (may_be_flat) types.push_back(type);
  c.text = llama::parse_llama_config(text, types);
  bool tied = false;
  top.flag("tie_word_embeddings", &tied);
  c.text.tie_embeddings = c.text.tie_embeddings || tied;
  family::parse_tokens(top, text, &c);
  family::parse_stored_dtype(top, text, &c);
  const auto own = std::make_shared<QwenVlFields>();
  const bool has_vision = top.find("vision_config") != nullptr;
  own->vision = parse_vision(
      has_vision ? top.child("vision_config") : ConfigFields(nothing, "vision_config.", where),
      kind, c.text);
  c.own = own;
  return c;
}

}  // namespace lft::qwen_vl
