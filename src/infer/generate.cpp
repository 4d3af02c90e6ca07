#include "src/infer/generate.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <limits>
#include <random>
#include <set>
#include <tuple>

#include "kernels/common/error.h"
#include "models/ops/core/precision.h"
#include "src/base/signals.h"
#include "src/data/batch.h"
#include "src/data/loader.h"

namespace lft::infer {
namespace {

/// One token a row for the next call; rows that ended are fed their last one and looked at no more.
family::Batch next_batch(const std::vector<int64_t>& last) {
  const auto rows = static_cast<int64_t>(last.size());
  return {.input_ids_bt = at::tensor(last, at::kLong).view({rows, 1}),
          .labels_bt = {},
          .lengths_b = at::ones({rows}, at::kLong),
          .packed = nullptr,
          .pixels = {},
          .images = {}};
}

/// How many new tokens the positions left allow the longest prompt.
int64_t new_token_limit(const std::vector<data::Sample>& prompts, const family::ModelConfig& config,
                        int64_t wanted) {
  int64_t limit = wanted;
  for (const data::Sample& prompt : prompts) {
    const auto length = static_cast<int64_t>(prompt.input_ids.size());
    const int64_t left = config.text.max_positions - length;
    if (left < 1 || length == 0) {
      refuse(ErrorKind::kInput, "the prompt leaves no position for an answer", prompt.id,
             std::to_string(length) + " positions",
             "1 to " + std::to_string(config.text.max_positions - 1), "shorten the prompt");
    }
    limit = std::min(limit, left);
  }
  return limit;
}

/// An image token stands for features that an answer does not have.
void forbid(at::Tensor& logits_bv, int64_t id) {
  if (id >= 0 && id < logits_bv.size(1))
    logits_bv.select(1, id).fill_(-std::numeric_limits<float>::infinity());
}

bool is_end(int64_t id, const family::ModelConfig& config) {
  return std::find(config.eos_tokens.begin(), config.eos_tokens.end(), id) !=
         config.eos_tokens.end();
}

/// A prompt at a time: the towers' activations of one are there at once, whatever the batch.
family::ImageFeatures features_of(family::Model& model, const std::vector<data::Sample>& prompts,
                                  const data::EncodeOptions& encode, at::Device device) {
  std::vector<family::ImageFeatures> parts;
  for (const data::Sample& prompt : prompts) {
    const family::Batch alone = data::collate({prompt}, encode, device);
    if (!family::image_shapes(alone).empty()) parts.push_back(model->image_features(alone));
  }
  return family::join_features(parts);
}

}  // namespace

int64_t pick_token(const at::Tensor& logits_v, const GenerateOptions& options, double uniform) {
  if (options.temperature <= 0) return logits_v.argmax().item<int64_t>();
  const double top_p = options.top_p;
  at::Tensor scaled_v = logits_v.to(at::kDouble) / options.temperature;
  if (options.top_k > 0 && options.top_k < scaled_v.numel()) {
    const at::Tensor least = std::get<0>(scaled_v.topk(options.top_k)).min();
    scaled_v = scaled_v.masked_fill(scaled_v < least, -std::numeric_limits<double>::infinity());
  }
  const at::Tensor probabilities = at::softmax(scaled_v, 0);
  auto [sorted, order] = probabilities.sort(/*stable=*/true, /*dim=*/0, /*descending=*/true);
  const double* p = sorted.const_data_ptr<double>();
  const int64_t count = sorted.numel();
  int64_t kept = 0;
  double mass = 0;
  while (kept < count && (kept == 0 || mass < top_p)) mass += p[kept++];
  double target = uniform * mass;
  int64_t pick = 0;
  while (pick + 1 < kept && target >= p[pick]) target -= p[pick++];
  return order.const_data_ptr<int64_t>()[pick];
}

void penalise_repetition(at::Tensor& logits_v, const std::vector<int64_t>& ids, double penalty) {
  if (penalty == 1) return;
  const std::set<int64_t> once(ids.begin(), ids.end());
  auto* const logits = logits_v.mutable_data_ptr<float>();
  const auto factor = static_cast<float>(penalty);
  for (const int64_t id : once) {
    if (id < 0 || id >= logits_v.numel()) continue;
    logits[id] = logits[id] < 0 ? logits[id] * factor : logits[id] / factor;
  }
}

std::vector<std::vector<int64_t>> generate_batch(family::Model& model,
                                                 const std::vector<data::Sample>& prompts,
                                                 const data::EncodeOptions& encode,
                                                 const GenerateOptions& options,
                                                 at::ScalarType compute) {
  std::vector<std::vector<int64_t>> answers(prompts.size());
  if (prompts.empty()) return answers;
  const int64_t limit = new_token_limit(prompts, model->config, options.max_new_tokens);
  at::NoGradGuard no_grad;
  ops::ComputeDtypeGuard guard(compute);
  const at::Device device = model->language_model->parameters().front().device();
  std::vector<std::mt19937_64> generators;
  for (size_t row = 0; row < prompts.size(); ++row) generators.emplace_back(options.seed + row);
  std::vector<std::vector<int64_t>> seen;  // ids of prompt and answer
  for (const data::Sample& prompt : prompts) seen.push_back(prompt.input_ids);
  std::vector<int64_t> last(prompts.size(), 0);
  std::vector<char> done(prompts.size(), 0);
  size_t open = prompts.size();
  llama::KvCache cache;
  const family::ImageFeatures features = features_of(model, prompts, encode, device);
  family::Batch batch = data::collate(prompts, encode, device);
  for (int64_t step = 0; step < limit && open > 0 && requested_signal() == 0; ++step) {
    at::Tensor logits_bv = model->next_logits(batch, cache, &features).to(at::kCPU).contiguous();
    forbid(logits_bv, model->config.image_token);
    for (size_t row = 0; row < prompts.size(); ++row) {
      if (done[row] != 0) continue;
      const double uniform = static_cast<double>(generators[row]() >> 11) * 0x1p-53;
      at::Tensor logits_v = logits_bv[static_cast<int64_t>(row)];
      penalise_repetition(logits_v, seen[row], options.repetition_penalty);
      last[row] = pick_token(logits_v, options, uniform);
      if (is_end(last[row], encode.config)) {
        done[row] = 1;
        --open;
        continue;
      }
      answers[row].push_back(last[row]);
      seen[row].push_back(last[row]);
      if (options.on_token) options.on_token(row, last[row]);
      if (!options.stops || !options.stops(answers[row])) continue;
      done[row] = 1;
      --open;
    }
    batch = next_batch(last);
  }
  return answers;
}

std::vector<int64_t> generate(family::Model& model, const data::Sample& prompt,
                              const data::EncodeOptions& encode, const GenerateOptions& options,
                              at::ScalarType compute) {
  return generate_batch(model, {prompt}, encode, options, compute).front();
}

}  // namespace lft::infer
