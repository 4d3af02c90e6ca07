#include "src/infer/eval_result.h"

#include <algorithm>

#include "src/infer/captions.h"

namespace lft::infer {
namespace {

void add(EvalResult& result, const EvalRecord& record) {
  ++result.samples;
  result.not_finite += record.bad ? 1 : 0;
  result.answered += record.answered ? 1 : 0;
  result.supervised += record.supervised;
  result.loss += record.loss * static_cast<double>(record.supervised);
  result.compared += record.answered && !record.references.empty() ? 1 : 0;
  result.exact_match += record.match ? 1 : 0;
  result.score += record.score;
}

/// Means over the pairs or rows.
void sum_up_preferences(EvalResult& result, const objective::Objective& objective) {
  std::vector<double> sums;
  for (const EvalRecord& record : result.records) {
    ++result.samples;
    result.not_finite += record.bad ? 1 : 0;
    result.supervised += record.supervised;
    result.loss += record.loss;
    sums.resize(std::max(sums.size(), record.figures.size()), 0);
    for (size_t i = 0; i < record.figures.size(); ++i) sums[i] += record.figures[i];
  }
  result.loss /= static_cast<double>(result.samples);
  if (!sums.empty()) result.preference_figures = objective.means(sums, result.samples);
}

/// Scores all captions together.
void score_captions_of(EvalResult& result) {
  std::vector<Caption> captions;
  std::vector<EvalRecord*> judged;
  for (EvalRecord& record : result.records) {
    if (!record.answered || record.references.empty()) continue;
    captions.push_back({record.answer, record.references});
    judged.push_back(&record);
  }
  const CaptionScores scores = score_captions(captions);
  for (size_t i = 0; i < judged.size(); ++i) judged[i]->score = scores.ciders[i];
  result.bleu4 = scores.bleu4;
}

}  // namespace

void sum_up(EvalResult& result, Metric metric, const objective::Objective* preference) {
  if (preference != nullptr) return sum_up_preferences(result, *preference);
  if (metric == Metric::kCaption) score_captions_of(result);
  for (const EvalRecord& record : result.records) add(result, record);
  // 0 / 0 is NaN: a mean over nothing has no value, and is never the best one.
  result.loss /= static_cast<double>(result.supervised);
  result.exact_match /= static_cast<double>(result.compared);
  result.score /= static_cast<double>(result.compared);
}

std::vector<std::pair<std::string, double>> figures_of(const EvalResult& result, Metric metric) {
  std::vector<std::pair<std::string, double>> figures = result.preference_figures;
  if (result.compared == 0) return figures;
  figures.emplace_back("exact_match", result.exact_match);
  if (metric != Metric::kExact) figures.emplace_back(figure_name(metric), result.score);
  if (metric == Metric::kCaption) figures.emplace_back("bleu4", result.bleu4);
  return figures;
}

Error not_finite_rows(const EvalResult& result, const text::Tokenizer& tokenizer,
                      at::ScalarType compute) {
  const auto first = std::ranges::find_if(
      result.records, [](const EvalRecord& record) { return record.bad.has_value(); });
  std::string where = row_text(first->id, *first->bad, &tokenizer);
  if (result.not_finite > 1) {
    where += ", the first of " + std::to_string(result.not_finite) + " such rows of " +
             std::to_string(result.samples);
  }
  return non_finite_error(where, first->bad->module, compute);
}

}  // namespace lft::infer
