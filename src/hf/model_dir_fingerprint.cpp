#include <algorithm>
#include <sstream>

#include "src/base/hash.h"
#include "src/hf/model_dir.h"
#include "src/hf/weights.h"

namespace lft::hf {
namespace {

/// What the model computes with. Spelling, defaults written out or not, and fields that change
/// nothing do not count.
std::string fingerprinted_config(const llava::LlavaConfig& config) {
  std::ostringstream out;
  out.precision(17);
  const llama::LlamaConfig& t = config.text;
  const clip::ClipConfig& v = config.vision;
  out << "llava 1\n"
      << t.hidden << ' ' << t.intermediate << ' ' << t.layers << ' ' << t.heads << ' ' << t.kv_heads
      << ' ' << t.head_dim << ' ' << t.vocab << ' ' << t.max_positions << ' ' << t.rms_norm_eps
      << ' ' << t.rope_theta << ' ' << t.rope_scaling.type << ' ' << t.rope_scaling.factor << ' '
      << t.rope_scaling.low_freq_factor << ' ' << t.rope_scaling.high_freq_factor << ' '
      << t.rope_scaling.original_max_positions << ' ' << t.attention_bias << t.mlp_bias
      << t.tie_embeddings << '\n'
      << v.hidden << ' ' << v.intermediate << ' ' << v.layers << ' ' << v.heads << ' '
      << v.image_size << ' ' << v.patch_size << ' ' << v.channels << ' ' << v.layer_norm_eps << ' '
      << v.activation << '\n'
      << config.image_token << ' ' << config.select_full << config.projector_bias << ' '
      << config.projector_activation;
  for (const int64_t layer : config.vision_feature_layers) out << ' ' << layer;
  return out.str();
}

}  // namespace

std::string base_fingerprint(const ModelDir& dir) {
  constexpr uint64_t kBlock = 4096;
  Sha256 hash;
  hash.update(fingerprinted_config(dir.config));
  std::string buffer(kBlock, '\0');
  for (const auto& [name, place] : dir.tensors) {
    const io::TensorInfo& info = dir.info(place);
    hash.update("\n" + name + " " + io::dtype_name(info.dtype) + " " + shape_text(info.shape) +
                "\n");
    const uint64_t bytes = std::min(kBlock, info.bytes);
    for (const uint64_t begin : {uint64_t{0}, (info.bytes - bytes) / 2, info.bytes - bytes}) {
      dir.files[place.file].read_range(info, begin, bytes, buffer.data());
      hash.update(buffer.data(), bytes);
    }
  }
  return hash.hex();
}

}  // namespace lft::hf
