#include "models/qwen_vl/vision.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "models/base/call.h"
#include "models/base/dims.h"
#include "models/layers/recompute.h"
#include "models/ops/core/copy_to_device.h"
#include "models/ops/elementwise/activation.h"
#include "models/ops/elementwise/rope.h"
#include "models/ops/linear/linear.h"

namespace lft::qwen_vl {
namespace {

/// x [s, ...] with groups of `unit` rows in the order of `groups_g`.
at::Tensor reordered(const at::Tensor& x, const at::Tensor& groups_g, int64_t unit) {
  return x.unflatten(0, {-1, unit}).index_select(0, groups_g).flatten(0, 1);
}

}  // namespace

PatchProjectionImpl::PatchProjectionImpl(const VisionConfig& config, at::TensorOptions options) {
  const std::vector<int64_t> shape = {config.hidden, 3, 2, config.patch, config.patch};
  weight = register_parameter("weight", at::empty(shape, options), /*requires_grad=*/false);
  if (config.deep())
    bias = register_parameter("bias", at::empty({config.hidden}, options),
                              /*requires_grad=*/false);
}

at::Tensor PatchProjectionImpl::forward(const at::Tensor& patches) {
  return ops::linear(patches, weight.to(at::kFloat).sum(2).flatten(1), bias);
}

PatchEmbedImpl::PatchEmbedImpl(const VisionConfig& config, at::TensorOptions options) {
  proj = register_module("proj", PatchProjection(config, options));
}

at::Tensor PatchEmbedImpl::forward(const at::Tensor& patches) {
  return call("proj", proj, patches);
}

VisionAttentionImpl::VisionAttentionImpl(const VisionConfig& config, at::TensorOptions options)
    : heads_(config.heads) {
  qkv = register_module("qkv", layers::Linear(config.hidden, 3 * config.hidden, true, options));
  proj = register_module("proj", layers::Linear(config.hidden, config.hidden, true, options));
}

at::Tensor VisionAttentionImpl::forward(const at::Tensor& x_sd, const VisionPass& pass,
                                        const ops::PackedSequences& sequences) {
  const int64_t s = x_sd.size(0), width = proj->weight.size(1);
  const at::Tensor all = call("qkv", qkv, x_sd);
  expect_dims(all, "the output of qkv", {{"s", s}, {"3*h*e", 3 * width}});
  const at::Tensor parts = all.view({1, s, 3, heads_, width / heads_});
  const at::Tensor q = ops::rope(parts.select(2, 0), pass.cos, pass.sin),
                   k = ops::rope(parts.select(2, 1), pass.cos, pass.sin);
  // A copy, so that the output of qkv, three times as large, can be freed.
  const at::Tensor v = parts.select(2, 2).contiguous();
  const at::Tensor mixed =
      ops::packed_attention(q.squeeze(0), k.squeeze(0), v.squeeze(0), sequences, /*causal=*/false);
  return call("proj", proj, mixed.flatten(1));
}

VisionMlpImpl::VisionMlpImpl(const VisionConfig& config, at::TensorOptions options)
    : activation_(config.activation),
      first_(config.deep() ? "linear_fc1" : "fc1"),
      second_(config.deep() ? "linear_fc2" : "fc2") {
  const auto add = [&](const char* name, int64_t in, int64_t out) {
    return register_module(name, layers::Linear(in, out, true, options));
  };
  if (config.gated()) {
    gate_proj = add("gate_proj", config.hidden, config.intermediate);
    up_proj = add("up_proj", config.hidden, config.intermediate);
    down_proj = add("down_proj", config.intermediate, config.hidden);
  } else {
    linear_fc1 = add(first_, config.hidden, config.intermediate);
    linear_fc2 = add(second_, config.intermediate, config.hidden);
  }
}

at::Tensor VisionMlpImpl::forward(const at::Tensor& x_sd) {
  if (gate_proj) {
    const at::Tensor gate = call("gate_proj", gate_proj, x_sd), up = call("up_proj", up_proj, x_sd);
    return call("down_proj", down_proj, gate, up);
  }
  return call(second_, linear_fc2, ops::activation(activation_, call(first_, linear_fc1, x_sd)));
}

VisionBlockImpl::VisionBlockImpl(const VisionConfig& config, at::TensorOptions options) {
  norm1.make(*this, "norm1", config.gated(), config.hidden, kNormEps, options);
  norm2.make(*this, "norm2", config.gated(), config.hidden, kNormEps, options);
  attn = register_module("attn", VisionAttention(config, options));
  mlp = register_module("mlp", VisionMlp(config, options));
}

at::Tensor VisionBlockImpl::forward(const at::Tensor& x_sd, const VisionPass& pass,
                                    const ops::PackedSequences& sequences) {
  const Dim d = {"d", attn->proj->weight.size(0)};
  expect_dims(x_sd, "x", {{"s"}, d});
  const at::Tensor mixed = call("attn", attn, norm1.run("norm1", x_sd), pass, sequences);
  expect_dims_like(mixed, "the output of attn", x_sd, d);
  const at::Tensor middle = x_sd + mixed;
  const at::Tensor added = call("mlp", mlp, norm2.run("norm2", middle));
  expect_dims_like(added, "the output of mlp", middle, d);
  return middle + added;
}

VisionTowerImpl::VisionTowerImpl(const VisionConfig& config, at::TensorOptions options)
    : config_(config) {
  patch_embed = register_module("patch_embed", PatchEmbed(config, options));
  if (config.deep())
    pos_embed =
        register_module("pos_embed", layers::Embedding(config.positions, config.hidden, options));
  blocks = register_module("blocks", std::make_shared<layers::StackImpl<VisionBlock>>());
  for (int64_t i = 0; i < config.depth; ++i) blocks->push_back(VisionBlock(config, options));
}

std::vector<at::Tensor> VisionTowerImpl::forward(const at::Tensor& pixels,
                                                 const std::vector<Grid>& grids) {
  const at::Device device = pixels.device();
  const int64_t unit = config_.merge * config_.merge;
  at::Tensor x = call("patch_embed", patch_embed, patches_of(pixels, grids, config_));
  const at::Tensor places = patch_places(grids, config_.merge);
  at::Tensor angles = patch_angles(places, config_);
  VisionPass pass;
  pass.of_images = sequences_at(image_starts(grids), device);
  at::Tensor back;  // index to undo the order of windows
  if (config_.gated()) {
    Windows windows = windows_of(grids, config_);
    angles = reordered(angles, windows.order_g, unit);
    x = reordered(x, ops::copy_to_device(windows.order_g, device), unit);
    back = ops::copy_to_device(windows.order_g.argsort(), device);
    pass.of_windows = sequences_at(std::move(windows.starts), device);
  } else if (config_.deep()) {
    const Corners corners = corners_of(places, grids, config_.positions);
    const at::Tensor around =
        call("pos_embed", pos_embed, ops::copy_to_device(corners.places, device));
    const at::Tensor weights = ops::copy_to_device(corners.weights, device).unsqueeze(2);
    x = x + (around * weights).sum(1).to(x.scalar_type());
  }
  pass.cos = ops::copy_to_device(angles.cos().unsqueeze(0), device);
  pass.sin = ops::copy_to_device(angles.sin().unsqueeze(0), device);
  std::vector<at::Tensor> states(1);
  const auto among = [](const std::vector<int64_t>& some, int64_t block) {
    return std::find(some.begin(), some.end(), block) != some.end();
  };
  for (int64_t i = 0; i < blocks->size(); ++i) {
    const VisionBlock& block = (*blocks)[i];
    const auto sequences =
        pass.of_windows && !among(config_.full_blocks, i) ? pass.of_windows : pass.of_images;
    const auto run = [block, i, pass, sequences](const at::Tensor& input) {
      return call_indexed("blocks", i, block, input, pass, *sequences);
    };
    x = layers::recomputes(i) ? layers::recompute(*block, x, run) : run(x);
    if (!config_.deep() || !among(config_.deep_blocks, i)) continue;
    states.push_back(x);
    // A separate node, so that the next block's gradient is summed here, with the same bits as in
    // recomputation.
    x = x.view(x.sizes());
  }
  states[0] = back.defined() ? reordered(x, back, unit) : x;
  return states;
}

}  // namespace lft::qwen_vl
