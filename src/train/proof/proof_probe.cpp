#include "src/train/proof/proof_probe.h"

#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/common/error.h"
#include "models/objective/forward_loss.h"
#include "models/ops/update/grad_stats.h"
#include "src/base/text.h"
#include "src/data/batch.h"
#include "src/train/explain/autograd_errors.h"
#include "src/train/inputs/run_inputs.h"
#include "src/train/step/global_batch.h"

namespace lft::train {
namespace {

constexpr double kScaleStep = 16;  // 65,536 reaches 1 after four

/// Counts from a search over an epoch.
struct Seen {
  int64_t samples = 0, supervised = 0, images = 0, skipped = 0;
  std::string text() const {
    std::string text = std::to_string(samples) + " samples: " + std::to_string(supervised) +
                       " with a supervised token, " + std::to_string(images) + " with an image";
    return skipped == 0 ? text : text + "; " + std::to_string(skipped) + " bad ones left out";
  }
};

/// An image affects the loss if a supervised token comes after it.
bool image_teaches(const data::Sample& sample, int64_t image_token) {
  const auto image = std::find(sample.input_ids.begin(), sample.input_ids.end(), image_token) -
                     sample.input_ids.begin();
  const auto labels =
      std::min<std::ptrdiff_t>(image, static_cast<std::ptrdiff_t>(sample.labels.size()));
  return std::any_of(sample.labels.begin() + labels, sample.labels.end(),
                     [](int64_t label) { return label != -100; });
}

std::vector<std::string> image_scopes(const std::vector<lora::Trainable>& trainables) {
  std::vector<std::string> scopes;
  for (const char* scope : {"projector", "vision"}) {
    const auto within = [&](const lora::Trainable& trainable) { return trainable.scope == scope; };
    if (std::any_of(trainables.begin(), trainables.end(), within)) scopes.emplace_back(scope);
  }
  return scopes;
}

[[noreturn]] void fail_without_supervision(const RunInputs& inputs, const Seen& seen) {
  refuse(ErrorKind::kInput, "no sample has a supervised token, so there is nothing to learn",
         inputs.recipe.data.train.text(), seen.text(),
         "an answer within data.max_tokens = " + std::to_string(inputs.data.encode.max_tokens) +
             " under data.template = " + inputs.data.encode.chat->name(),
         "usual causes: data.max_tokens cuts every answer off (raise it, or shorten "
         "the prompts), or the answers are empty");
}

[[noreturn]] void fail_without_image(const RunInputs& inputs,
                                     const std::vector<std::string>& scopes,
                                     const std::string& found) {
  refuse(ErrorKind::kUsage,
         "no image can teach the " + join(scopes, " and the ") + ", which the recipe trains",
         inputs.recipe.data.train.text(), found, "an image with a supervised token after it",
         "take " + join(scopes, " and ") +
             " out of full and lora.targets, or train on rows with images");
}

/// Fills the probe's samples and indices from the first suitable micro-batch.
void search(const RunInputs& inputs, bool image, Probe& probe, Seen& seen) {
  data::LoaderOptions options = loader_options(inputs, inputs.data.lengths);
  options.workers = 1;
  data::Loader loader(*inputs.data.train, options);
  const int64_t image_token = inputs.data.encode.config.image_token;
  for (int64_t step = 0; step < loader.steps_per_epoch(); ++step) {
    data::StepSamples samples = loader.next();
    seen.skipped += static_cast<int64_t>(samples.skipped.size());
    for (size_t micro = 0; micro < samples.micro.size(); ++micro) {
      bool serves = false;
      for (const data::Sample& sample : samples.micro[micro]) {
        const bool supervised = sample.supervised() > 0;
        ++seen.samples;
        seen.supervised += supervised ? 1 : 0;
        seen.images += sample.images.empty() ? 0 : 1;
        serves |= supervised && (!image || image_teaches(sample, image_token));
      }
      if (!serves) continue;
      probe.samples = std::move(samples.micro[micro]);
      probe.indices = std::move(samples.indices[micro]);
      return;
    }
  }
}

at::Tensor probe_loss(family::Model& model, const Probe& probe, const family::Batch& batch) {
  const at::AutoGradMode with_graph(true);
  return objective::forward_loss({.compute = probe.compute,
                                  .recompute = probe.recompute,
                                  .offload_activations = probe.offload_activations,
                                  .normaliser = supervised_tokens(probe.samples)},
                                 model, batch);
}

ProbeGradients one_pass(family::Model& model, const std::vector<at::Tensor>& tensors,
                        const Probe& probe, const family::Batch& batch, double scale) {
  const at::AutoGradMode with_graph(true);
  const at::Tensor loss = probe_loss(model, probe, batch);
  ProbeGradients result{
      .loss = loss.item<double>(), .loss_scale = scale, .reached = {}, .norms = {}};
  std::vector<at::Tensor> asked, gradients(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    if (tensor.requires_grad()) asked.push_back(tensor);
  }
  if (loss.requires_grad() && !asked.empty()) {
    const auto got = torch::autograd::grad({loss * scale}, asked, {}, /*retain_graph=*/false,
                                           /*create_graph=*/false, /*allow_unused=*/true);
    for (size_t i = 0, next = 0; i < tensors.size(); ++i) {
      if (tensors[i].requires_grad()) gradients[i] = got[next++];
    }
  }
  const ops::GradStats stats = ops::read_stats(
      ops::check_gradients(gradients, /*inv_scale=*/1, /*max_norm=*/0, loss.detach()));
  result.finite = !stats.found_inf;
  for (size_t i = 0; i < tensors.size(); ++i) {
    result.reached.push_back(gradients[i].defined());
    result.norms.push_back(stats.norms[i] / scale);
  }
  return result;
}

}  // namespace

Probe find_probe(const RunInputs& inputs, const std::vector<lora::Trainable>& trainables) {
  const std::vector<std::string> scopes = image_scopes(trainables);
  if (!scopes.empty() && !inputs.data.train->any_image()) {
    fail_without_image(inputs, scopes,
                       std::to_string(inputs.data.train->size()) + " rows, none with an image");
  }
  Seen seen;
  Probe probe{.samples = {},
              .encode = inputs.data.encode,
              .device = inputs.device,
              .compute = inputs.precision.compute,
              .loss_scale = inputs.precision.compute == at::kHalf
                                ? inputs.recipe.precision.loss_scale.init
                                : 1.0,
              .recompute = recompute_every(inputs.recipe.train.activation_checkpointing),
              .offload_activations = offloads_activations(inputs.recipe, inputs.device),
              .packed = batch_layout(inputs).packs()};
  search(inputs, !scopes.empty(), probe, seen);
  if (!probe.samples.empty()) return probe;
  if (seen.supervised == 0) fail_without_supervision(inputs, seen);
  fail_without_image(inputs, scopes,
                     seen.text() + ", none with an image before a supervised token");
}

ProbeGradients probe_gradients(family::Model& model, const std::vector<at::Tensor>& tensors,
                               const Probe& probe) {
  const family::Batch batch = data::make_batch(
      {.encode = probe.encode, .device = probe.device, .packed = probe.packed}, probe.samples);
  try {
    ProbeGradients result = one_pass(model, tensors, probe, batch, probe.loss_scale);
    while (!result.finite && std::isfinite(result.loss) && result.loss_scale > 1) {
      result =
          one_pass(model, tensors, probe, batch, std::max(1.0, result.loss_scale / kScaleStep));
    }
    return result;
  } catch (const std::exception& error) {
    rethrow_explained(
        error, *model, [&] { return probe_loss(model, probe, batch); }, at::Tensor());
  }
}

Probe in_fp32(const Probe& probe) {
  Probe wide = probe;
  wide.compute = at::kFloat;
  wide.loss_scale = 1;
  wide.recompute = 1;
  return wide;
}

}  // namespace lft::train
