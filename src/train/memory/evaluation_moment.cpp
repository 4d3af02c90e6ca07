#include "src/train/memory/evaluation_moment.h"

#include <algorithm>
#include <optional>

#include "models/llama/kv_cache.h"
#include "src/infer/evaluate.h"
#include "src/train/memory/memory_delta.h"

namespace lft::train {
namespace {

Moment frozen_pass(const RunSettings& settings, const PassShape& shape) {
  RunSettings frozen = settings;
  frozen.recipe.lora.targets.clear();
  frozen.recipe.full.clear();
  return worst_moment(memory_units(frozen, shape), pixel_bytes(shape), 1, 0);
}

}  // namespace

Moment evaluation_moment(const RunSettings& settings, double gradients, bool alone) {
  const data::SampleLength& row = settings.evaluated;
  if (row.tokens == 0 || !settings.device.is_cpu()) return {};
  const recipe::Recipe& recipe = settings.recipe;
  const int64_t rows = std::min(recipe.train.batch_size, settings.evaluated_rows);
  const std::optional<infer::Metric> metric = infer::find_metric(recipe.train.keep_best.word());
  int64_t answer = 0;
  if (metric == infer::Metric::kExact) answer = infer::exact_answer_tokens(row.supervised);
  if (metric && metric != infer::Metric::kExact) answer = infer::GenerateOptions().max_new_tokens;
  const bool packed = settings.shares_prompts;
  const PassShape shape{.samples = rows * row.sides,
                        .rows = packed ? 1 : rows * row.sides,
                        .longest = packed ? rows * row.packed() : row.longest,
                        .images = rows * row.images,
                        .supervised = rows * row.supervised,
                        .attended = rows * (packed ? row.tokens : row.sides * row.longest),
                        .values = rows * row.values,
                        .tower = rows * row.tower,
                        .placed = rows * row.placed,
                        .row_values = alone ? row.values : 0,
                        .row_tower = alone ? row.tower : 0,
                        .row_placed = alone ? row.placed : 0};
  Moment moment = frozen_pass(settings, shape);
  moment.name = "evaluation, " + moment.name;
  moment.gradients = gradients;
  // Its loader reads ahead too.
  moment.pixels += static_cast<double>(2 + 2 * recipe.data.workers / std::max<int64_t>(1, rows)) *
                   pixel_bytes(shape) / 4;
  if (!metric) return moment;
  const llama::LlamaConfig& text = settings.config.text;
  const int64_t positions = rows * llama::whole_key_steps(row.tokens + answer);
  const auto recurrent =
      static_cast<int64_t>(std::count(text.recurrent.begin(), text.recurrent.end(), true));
  const double compute = pass_types(settings).compute;
  moment.activations["keys and values of answers"] +=
      static_cast<double>(2 * (text.layers - recurrent) * text.kv_heads * text.head_dim *
                          positions) *
      compute;
  if (recurrent > 0)
    moment.activations["states of answers"] = delta_states(text.delta, rows, recurrent, compute);
  moment.temporaries += 4.0 * 2 * static_cast<double>(rows * text.vocab);  // logits
  return moment;
}

Moment kl_moment(const RunSettings& settings, const PassShape& shape, double trained) {
  Moment moment = frozen_pass(settings, shape);
  moment.name = "KL divergence, " + moment.name;
  moment.temporaries += trained;
  return moment;
}

}  // namespace lft::train
