#include "src/infer/decoding.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "kernels/common/error.h"
#include "models/ops/core/few_rows.h"
#include "models/ops/core/precision.h"
#include "models/ops/elementwise/logits.h"
#include "src/data/batch.h"
#include "src/data/loader.h"

namespace lft::infer {
namespace {

/// The number of new tokens for which there are positions after a prompt.
int64_t new_token_limit(const data::Sample& prompt, const family::ModelConfig& config,
                        int64_t wanted) {
  const auto length = static_cast<int64_t>(prompt.input_ids.size());
  const int64_t left = config.text.max_positions - length;
  if (left < 1 || length == 0) {
    refuse(ErrorKind::kInput, "the prompt leaves no position for an answer", prompt.id,
           std::to_string(length) + " positions",
           "1 to " + std::to_string(config.text.max_positions - 1), "shorten the prompt");
  }
  return std::min(wanted, left);
}

/// An image token represents features, which an answer does not have.
void forbid(at::Tensor& logits_bv, int64_t id) {
  if (id >= 0 && id < logits_bv.size(1))
    logits_bv.select(1, id).fill_(-std::numeric_limits<float>::infinity());
}

bool is_end(int64_t id, const family::ModelConfig& config) {
  return std::find(config.eos_tokens.begin(), config.eos_tokens.end(), id) !=
         config.eos_tokens.end();
}

/// One prompt at a time, so that the towers' activations of only one are in memory.
family::ImageFeatures features_of(family::Model& model, const std::vector<data::Sample>& prompts,
                                  const data::EncodeOptions& encode, at::Device device) {
  std::vector<family::ImageFeatures> parts;
  for (const data::Sample& prompt : prompts) {
    const family::Batch alone = data::collate({prompt}, encode, device);
    if (!family::image_shapes(alone).empty()) parts.push_back(model->features(alone));
  }
  return family::join_features(parts);
}

/// One token per row for the next call.
family::Batch next_batch(const std::vector<int64_t>& last) {
  const auto rows = static_cast<int64_t>(last.size());
  return {.input_ids_bt = at::tensor(last, at::kLong).view({rows, 1}),
          .labels_bt = {},
          .lengths_b = at::ones({rows}, at::kLong),
          .packed = nullptr,
          .pixels = {},
          .images = {}};
}

TokenScores scores_of(const at::Tensor& logprobs_v, int64_t id, int64_t top) {
  TokenScores scores{.logprob = logprobs_v[id].item<double>()};
  const auto [values, ids] = logprobs_v.topk(std::min(top, logprobs_v.numel()));
  for (int64_t i = 0; i < values.numel(); ++i)
    scores.top.emplace_back(ids[i].item<int64_t>(), values[i].item<double>());
  return scores;
}

template <class T>
std::vector<T> at_places(const std::vector<T>& all, const std::vector<int64_t>& places) {
  std::vector<T> kept;
  for (const int64_t place : places) kept.push_back(all[static_cast<size_t>(place)]);
  return kept;
}

}  // namespace

int64_t pick_token(const at::Tensor& logits_v, const GenerateOptions& options, double uniform) {
  if (options.temperature <= 0) return ops::largest(logits_v);
  const double top_p = options.top_p;
  const at::Tensor wide_v = logits_v.to(at::kDouble);
  at::Tensor scaled_v = (wide_v - wide_v.max()) / options.temperature;  // at most 0: no overflow
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

Decoding::Decoding(family::Model& model, const data::EncodeOptions& encode, at::ScalarType compute)
    : model_(model), encode_(encode), compute_(compute) {}

std::vector<int64_t> Decoding::draw(std::vector<Row>& rows, at::Tensor logits_bv,
                                    std::vector<FinishedAnswer>& ended) const {
  const std::vector<bool> finite = ops::finite_rows(logits_bv);
  std::vector<at::Tensor> logprobs(rows.size());  // of the rows that want them
  for (size_t at = 0; at < rows.size(); ++at) {
    if (rows[at].options.on_scores)
      logprobs[at] = at::log_softmax(logits_bv[static_cast<int64_t>(at)], 0);
  }
  forbid(logits_bv, model_->config.image_token);
  std::vector<int64_t> open;
  for (size_t at = 0; at < rows.size(); ++at) {
    Row& row = rows[at];
    if (!finite[at]) {
      ended.push_back({.key = row.key, .bad = explain(row)});
      continue;
    }
    const GenerateOptions& options = row.options;
    const double uniform = static_cast<double>(row.generator() >> 11) * 0x1p-53;
    at::Tensor logits_v = logits_bv[static_cast<int64_t>(at)];
    penalise_repetition(logits_v, row.ids, options.repetition_penalty);
    const int64_t id = pick_token(logits_v, options, uniform);
    if (is_end(id, encode_.config)) {
      ended.push_back({.key = row.key, .by_end_token = true});
      continue;
    }
    row.ids.push_back(id);
    if (options.on_scores)
      options.on_scores(row.key, scores_of(logprobs[at], id, options.top_scores));
    if (options.on_token) options.on_token(row.key, id);
    if (options.stops &&
        options.stops({row.ids.begin() + std::ssize(row.prompt->input_ids), row.ids.end()})) {
      ended.push_back({.key = row.key});
    } else if (--row.left == 0) {
      ended.push_back({.key = row.key, .by_limit = true});
    } else {
      open.push_back(static_cast<int64_t>(at));
    }
  }
  return open;
}

void Decoding::keep(const std::vector<int64_t>& places) {
  if (places.size() == rows_.size()) return;
  cache_ = keep_rows(std::move(cache_), places);
  rows_ = at_places(rows_, places);
}

NonFinite Decoding::explain(const Row& row) const {
  data::Sample whole = *row.prompt;
  whole.input_ids = row.ids;
  whole.labels.assign(row.ids.size(), -100);
  llama::KvCache cache;
  NonFinite bad = find_non_finite(whole, [&] {
    model_->next_logits(data::collate({whole}, encode_, model_->device()), cache);
  });
  if (bad.place.position < 0 && bad.place.image < 0) {  // of the last position, or unknown
    bad.place.position = std::ssize(row.ids) - 1;
    bad.token = row.ids.back();
  }
  bad.answer.assign(row.ids.begin() + std::ssize(row.prompt->input_ids), row.ids.end());
  return bad;
}

at::Tensor Decoding::run_prompts(const std::vector<Prompt>& prompts, llama::KvCache& cache) {
  const bool scored = prompts.front().whole != nullptr;
  std::vector<data::Sample> samples;
  for (const Prompt& prompt : prompts) samples.push_back(scored ? *prompt.whole : *prompt.sample);
  const at::Device device = model_->device();
  const family::ImageFeatures features = features_of(model_, samples, encode_, device);
  const family::Batch batch = data::collate(samples, encode_, device);
  if (!scored) return model_->next_logits(batch, cache, &features).to(at::kCPU);
  std::vector<int64_t> lengths;
  for (const Prompt& prompt : prompts) lengths.push_back(std::ssize(prompt.sample->input_ids));
  const family::ScoredRows rows = model_->score_and_begin(batch, lengths, cache, &features);
  const at::Tensor logprobs_k = rows.logprobs_k.to(at::kCPU);
  int64_t next = 0;
  for (const Prompt& prompt : prompts) {
    const int64_t count = prompt.whole->supervised();
    *prompt.logprobs = logprobs_k.narrow(0, next, count);
    next += count;
  }
  return rows.logits_bv.to(at::kCPU);
}

std::vector<FinishedAnswer> Decoding::begin(const std::vector<Prompt>& prompts) {
  std::vector<FinishedAnswer> ended;
  if (prompts.empty()) return ended;
  std::vector<Row> rows;
  std::vector<Prompt> once;      // one prompt of each sample
  std::vector<int64_t> sources;  // the index in `once` of each row
  for (const Prompt& prompt : prompts) {
    const GenerateOptions& options = prompt.options;
    rows.push_back({.key = prompt.key,
                    .left = new_token_limit(*prompt.sample, model_->config, options.max_new_tokens),
                    .options = options,
                    .generator = std::mt19937_64(options.seed),
                    .ids = prompt.sample->input_ids,
                    .prompt = std::make_shared<data::Sample>(*prompt.sample)});
    if (once.empty() || prompt.sample != once.back().sample) once.push_back(prompt);
    sources.push_back(std::ssize(once) - 1);
  }
  const at::NoGradGuard no_grad;
  const ops::ComputeDtypeGuard guard(compute_);
  const ops::FewRowsGuard few_rows;
  llama::KvCache fresh;
  const at::Tensor logits_bv =
      run_prompts(once, fresh).index_select(0, at::tensor(sources, at::kLong));
  const std::vector<int64_t> open = draw(rows, logits_bv, ended);
  if (open.size() < rows.size() || once.size() < rows.size())
    fresh = keep_rows(std::move(fresh), at_places(sources, open));
  cache_ = join_rows(cache_, fresh);
  std::ranges::move(at_places(rows, open), std::back_inserter(rows_));
  return ended;
}

std::vector<FinishedAnswer> Decoding::step() {
  std::vector<FinishedAnswer> ended;
  if (rows_.empty()) return ended;
  std::vector<int64_t> last;
  for (const Row& row : rows_) last.push_back(row.ids.back());
  const at::NoGradGuard no_grad;
  const ops::ComputeDtypeGuard guard(compute_);
  const ops::FewRowsGuard few_rows;
  keep(draw(rows_, model_->next_logits(next_batch(last), cache_).to(at::kCPU), ended));
  return ended;
}

void Decoding::drop(size_t key) {
  std::vector<int64_t> open;
  for (size_t at = 0; at < rows_.size(); ++at) {
    if (rows_[at].key != key) open.push_back(static_cast<int64_t>(at));
  }
  keep(open);
}

}  // namespace lft::infer
