#include "src/train/step/graph_passes.h"

#include <ATen/Functions.h>
#include <ATen/ceil_div.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <bit>

#include "kernels/common/error.h"
#include "models/layers/linear.h"
#include "models/layers/recompute.h"
#include "models/ops/core/dispatch.h"
#include "models/ops/core/precision.h"

namespace lft::train {
namespace {

int64_t filled_rows(int64_t rows, int64_t tokens) {
  return std::min(tokens,
                  at::round_up(std::max<int64_t>(rows, 1),
                               at::round_up(at::ceil_div(tokens, int64_t{8}), int64_t{16})));
}

int64_t most_sequences(const PassLimits& limits) {
  return limits.sequences + limits.tokens / limits.longest + 2;
}

/// At most `most`, else the next power of two: attention launches blocks for every sequence up to
/// the longest length, with or without tokens.
int64_t filled_up(int64_t value, int64_t least, int64_t most) {
  const auto wanted = static_cast<uint64_t>(std::max(value, least));
  return std::min(most, static_cast<int64_t>(std::bit_ceil(wanted)));
}

constexpr char kDecoder[] = "llm";  // the scope

bool behind_embedding(const Slot& slot) { return slot.param.scope == kDecoder; }

bool trains_images(const Optimizer& optimizer) {
  return !std::all_of(optimizer.slots().begin(), optimizer.slots().end(), behind_embedding);
}

}  // namespace

/// Offsets of the staged values, which depend only on the shape.
struct GraphPasses::Inputs {
  at::Tensor streams_m, seed, starts_s1, positions_t, rows_k,
      targets_k;  // a fill row has the target -1

  Inputs(const at::Tensor& staged, int64_t modules, const Shape& shape) {
    int64_t at = 0;
    const auto next = [&](int64_t count) {
      const at::Tensor part = staged.narrow(0, at, count);
      at += count;
      return part;
    };
    streams_m = next(modules);
    seed = next(1);  // the bits of a double
    starts_s1 = next(shape.sequences + 1);
    positions_t = next(shape.tokens);
    rows_k = next(shape.rows);
    targets_k = next(shape.rows);
    used = at;
  }
  int64_t used = 0;
};

GraphPasses::GraphPasses(const family::Model& model, Optimizer& optimizer, PassLimits limits,
                         at::Device device, bool exact, std::unique_ptr<GraphArena> arena)
    : model_(model),
      optimizer_(optimizer),
      limits_(limits),
      device_(device),
      graphs_(arena ? std::move(arena) : make_graph_arena(device), exact),
      trains_images_(trains_images(optimizer)),
      staged_(at::zeros({static_cast<int64_t>(optimizer.slots().size()) + 1 +
                         most_sequences(limits) + 1 + 3 * limits.tokens},
                        at::TensorOptions(at::kLong).device(device))),
      loss_(at::zeros({}, at::TensorOptions(at::kFloat).device(device))),
      logprobs_(at::zeros({limits.tokens}, loss_.options())),
      streams_(staged_.narrow(0, 0, static_cast<int64_t>(optimizer.slots().size()))) {
  optimizer_.zero_gradients();
  gradients_ = optimizer_.flat_gradients(kDecoder);
  for (const auto& module : model_->modules()) {
    const auto layer = std::dynamic_pointer_cast<layers::LinearImpl>(module);
    if (layer != nullptr && layer->adapter() != nullptr) adapted_.emplace_back(layer);
  }
  model_->language_model->model->reserve_positions(
      limits.longest, device);  // outside the arena, where it would be overwritten
}

void GraphPasses::stage(const family::Batch& batch, const family::SupervisedRows& rows,
                        const Shape& shape, const ops::DropoutPosition& position, double seed) {
  at::Tensor host = at::zeros(
      staged_.sizes(), at::TensorOptions(at::kLong).pinned_memory(ops::runs_kernels(device_)));
  const auto modules = static_cast<int64_t>(optimizer_.slots().size());
  const Inputs to(host, modules, shape);
  const std::vector<uint64_t> streams = streams_.at(position.step, position.micro_batch);
  std::transform(streams.begin(), streams.end(), to.streams_m.mutable_data_ptr<int64_t>(),
                 [](uint64_t stream) { return static_cast<int64_t>(stream); });
  *to.seed.mutable_data_ptr<int64_t>() = std::bit_cast<int64_t>(seed);
  const std::vector<int64_t>& from = batch.packed->starts;
  int64_t* const starts = to.starts_s1.mutable_data_ptr<int64_t>();
  int64_t* const out = std::copy(from.begin(), from.end(), starts);
  std::fill(out, starts + shape.sequences + 1, from.back());  // empty sequences
  to.positions_t.copy_(batch.packed->positions());
  const int64_t supervised = rows.rows_k.numel();
  to.rows_k.narrow(0, 0, supervised).copy_(rows.rows_k);
  to.targets_k.fill_(-1);
  to.targets_k.narrow(0, 0, supervised).copy_(rows.targets_k);
  staged_.narrow(0, 0, to.used).copy_(host.narrow(0, 0, to.used), /*non_blocking=*/true);
}

/// In a separate buffer for every number of images.
family::ImageFeatures GraphPasses::frozen_features(const family::Batch& batch) {
  const at::NoGradGuard no_grad;
  const int64_t images = batch.pixels.size(0);
  if (images_.size() == kMostImageCounts && !images_.contains(images))
    return model_->image_features(batch);
  auto [entry, is_new] = images_.try_emplace(images);
  auto& [held, features] = entry->second;
  if (is_new) {
    held.pixels = batch.pixels.clone();
    held.images = batch.images;
    features = model_->image_features(held).features_kd.clone();
    return {.features_kd = features, .deepstack_features_kd = {}};
  }
  held.pixels.copy_(batch.pixels);
  graphs_.run("vision tower over " + std::to_string(images) + " images", /*size=*/0, {features},
              [&, held = held, features = features] {
                features.copy_(model_->image_features(held).features_kd);
              });
  return {.features_kd = features, .deepstack_features_kd = {}};
}

at::Tensor GraphPasses::embed(const family::Batch& batch) {
  if (trains_images_ || !batch.pixels.defined()) return model_->embed(batch);
  const family::ImageFeatures features = frozen_features(batch);
  return model_->embed(batch, &features);
}

void GraphPasses::hold_embeds(const at::Tensor& embeds_btd) {
  if (!embeds_.defined()) {
    embeds_ = at::zeros({1, limits_.tokens, embeds_btd.size(2)},
                        embeds_btd.options().requires_grad(false));
    embeds_gradient_ = at::zeros_like(embeds_);
  }
  embeds_.narrow(1, 0, embeds_btd.size(1)).copy_(embeds_btd.detach());
}

/// The body of a graph: everything it reads and writes outside the arena has a fixed address.
void GraphPasses::decode(const Shape& shape, const std::vector<int64_t>& starts) {
  const Inputs in(staged_, static_cast<int64_t>(optimizer_.slots().size()), shape);
  at::Tensor embeds = embeds_.narrow(1, 0, shape.tokens).detach();
  if (shape.trains_embeds) {
    embeds.requires_grad_();
    embeds.mutable_grad() = embeds_gradient_.narrow(1, 0, shape.tokens).zero_();
  }
  auto packed = std::make_shared<ops::PackedSequences>();
  packed->starts = starts;
  if (!device_.is_cpu()) packed->starts_s1 = in.starts_s1.to(at::kInt);
  packed->positions_t = in.positions_t;
  packed->at_least = shape.longest;
  const at::Tensor logprobs =
      model_->logprobs_after({embeds, std::move(packed)}, in.rows_k, in.targets_k.clamp_min(0));
  const at::Tensor loss = -at::where(in.targets_k >= 0, logprobs, at::zeros_like(logprobs)).sum();
  loss_.copy_(loss.detach());
  if (shape.tells_logprobs) logprobs_.narrow(0, 0, shape.rows).copy_(logprobs.detach());
  loss.backward(in.seed.view(at::kDouble).to(at::kFloat).squeeze(0));
}

at::Tensor GraphPasses::run(family::Batch batch, const objective::ForwardContext& context,
                            double scale) {
  if (!gradients_.is_alias_of(optimizer_.flat_gradients(kDecoder))) {
    throw Error(ErrorKind::kInternal, "GraphPasses: the gradients have moved");
  }
  const ops::ComputeDtypeGuard dtype(context.compute);
  const layers::RecomputeGuard recompute(context.recompute);
  ops::DropoutPosition position = context.dropout.value();
  const family::SupervisedRows rows =
      family::supervised_rows(batch.labels_bt, model_->config.text.vocab);
  at::Tensor embeds;
  {
    const ops::DropoutGuard dropout(position);
    embeds = embed(batch);
  }
  const auto sequences = static_cast<int64_t>(batch.packed->starts.size()) - 1;
  if (sequences > most_sequences(limits_))
    throw Error(ErrorKind::kInternal, "GraphPasses: more sequences than the run can have");
  const Shape shape{.tokens = embeds.size(1),
                    .rows = filled_rows(rows.rows_k.numel(), embeds.size(1)),
                    .sequences = filled_up(sequences, 16, most_sequences(limits_)),
                    .longest = filled_up(batch.packed->longest(), 1024, limits_.longest),
                    .trains_embeds = embeds.requires_grad(),
                    .tells_logprobs = context.logprobs != nullptr};
  hold_embeds(embeds);
  stage(batch, rows, shape, position, scale / static_cast<double>(context.normaliser));
  position.streams = &streams_;
  const ops::DropoutGuard dropout(position);
  for (const layers::Linear& layer : adapted_) layer->adapter()->refresh(layer->stored());
  std::vector<at::Tensor> outputs = {gradients_, loss_};
  if (shape.trains_embeds) outputs.push_back(embeds_gradient_.narrow(1, 0, shape.tokens));
  if (shape.tells_logprobs) outputs.push_back(logprobs_.narrow(0, 0, shape.rows));
  const auto body = [&] { decode(shape, batch.packed->starts); };
  if (!device_.is_cpu() &&
      context.compute ==
          at::kFloat) {  // float32 attention launches a kernel per sequence, of its length
    body();
  } else {
    graphs_.run("decoder over " + std::to_string(shape.tokens) + " tokens, head over " +
                    std::to_string(shape.rows) + " rows, " + std::to_string(shape.sequences) +
                    " sequences of up to " + std::to_string(shape.longest) +
                    (shape.trains_embeds ? ", gradient of the embeddings" : "") +
                    (shape.tells_logprobs ? ", each token's loss" : ""),
                shape.tokens, outputs, body);
  }
  optimizer_.gradients_written(kDecoder);
  streams_.pass_done();
  const at::Tensor loss = loss_ / static_cast<double>(context.normaliser);
  if (shape.tells_logprobs) *context.logprobs = logprobs_.narrow(0, 0, rows.rows_k.numel()).clone();
  if (shape.trains_embeds) embeds.backward(embeds_gradient_.narrow(1, 0, shape.tokens));
  return loss;
}

}  // namespace lft::train
