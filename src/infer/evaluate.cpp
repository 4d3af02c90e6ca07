#include "src/infer/evaluate.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "models/objective/forward_loss.h"
#include "src/base/phase.h"
#include "src/base/signals.h"
#include "src/base/text.h"
#include "src/data/batch.h"
#include "src/data/encode.h"
#include "src/data/loader.h"
#include "src/infer/generate.h"
#include "src/infer/reference_sums.h"
#include "src/infer/stop_strings.h"

namespace lft::infer {
namespace {

/// The inputs of every batch of an evaluation.
struct Evaluation {
  family::Model& model;
  const data::Dataset& dataset;
  const text::Tokenizer& tokenizer;
  const data::EncodeOptions& encode;
  const EvalOptions& options;
  Phase& phase;
};

data::BatchLayout layout_of(const Evaluation& of) {
  return {.encode = of.encode, .device = of.model->device(), .packed = of.options.max_tokens > 0};
}

/// Of a row that is evaluated.
int64_t samples_together(const EvalOptions& options) {
  return options.preference != nullptr ? options.preference->rows_together() : 1;
}

/// Sets the loss of a row from the log-probabilities of its supervised tokens.
void set_loss(const Evaluation& of, const data::Sample& sample, const at::Tensor& logprobs_k,
              EvalRecord& record) {
  if (record.supervised > 0)
    record.loss =
        -logprobs_k.to(at::kDouble).sum().item<double>() / static_cast<double>(record.supervised);
  if (!std::isfinite(record.loss) && !record.open)
    record.bad = explain_loss(of.model, sample, of.encode, of.options.compute);
}

/// Teacher-forced: every supervised token's log-probability, split back to the rows.
void score_batch(const Evaluation& of, const std::vector<data::Sample>& samples,
                 std::vector<EvalRecord>& records) {
  at::NoGradGuard no_grad;
  if (std::all_of(records.begin(), records.end(),
                  [](const EvalRecord& record) { return record.supervised == 0 || record.open; }))
    return;
  const family::Batch batch = data::make_batch(layout_of(of), samples);
  const at::Tensor logprobs_k =
      objective::forward_logprobs({.compute = of.options.compute}, of.model, batch).to(at::kCPU);
  int64_t next = 0;
  for (size_t i = 0; i < records.size(); ++i) {
    set_loss(of, samples[i], logprobs_k.narrow(0, next, records[i].supervised), records[i]);
    next += records[i].supervised;
  }
}

/// Objective::uses_kl(): of the rows of a global batch.
double kl_of(const Evaluation& of, const std::vector<std::vector<data::Sample>>& micro) {
  std::vector<double> ratios;
  const objective::ForwardContext context{.compute = of.options.compute};
  for (const std::vector<data::Sample>& samples : mismatched(micro, of.encode)) {
    if (requested_signal() != 0) return 0;  // the evaluation stops
    for (const double sum : answer_sums(context, of.model, layout_of(of), samples))
      ratios.push_back(sum);
  }
  size_t at = 0;
  for (const std::vector<data::Sample>& samples : micro)
    for (const data::Sample& sample : samples) ratios[at++] -= sample.mismatched_reference;
  return kl_estimate(ratios);
}

/// The loss and the figures of each pair or row. `records` has one for `together` samples.
void score_preferences(const Evaluation& of, const std::vector<data::Sample>& samples, double kl,
                       std::vector<EvalRecord>& records) {
  at::NoGradGuard no_grad;
  at::Tensor figures;
  objective::forward_loss({.compute = of.options.compute,
                           .kl = kl,
                           .figures = &figures,
                           .objective = of.options.preference},
                          of.model, data::make_batch(layout_of(of), samples));
  const at::Tensor of_units = figures.to(at::kCPU).contiguous();
  const auto width = static_cast<size_t>(of_units.size(1));
  const size_t together = samples.size() / records.size();
  const double* next = of_units.const_data_ptr<double>();
  for (size_t i = 0; i < records.size(); ++i, next += width) {
    EvalRecord& record = records[i];
    record.loss = next[0];
    record.figures.assign(next + 1, next + width);
    for (size_t side = together * i; side < together * (i + 1); ++side) {
      if (side > together * i) record.supervised += samples[side].supervised();
      if (!std::isfinite(record.loss) && !record.bad)
        record.bad = explain_loss(of.model, samples[side], of.encode, of.options.compute);
    }
  }
}

/// The index of the message to be answered: the last supervised answer with a token in the sample.
/// Every such answer is a run of supervised tokens, and truncation removes the end. For an open
/// row, the next message.
size_t answer_asked(const data::Sample& sample, const data::Row& row, bool open) {
  const std::vector<text::Message>& messages = row.messages();
  if (open) return messages.size();
  std::vector<size_t> learnt;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role == "assistant" && messages[i].learnt) learnt.push_back(i);
  }
  if (learnt.empty()) return messages.size();
  size_t runs = 0;
  for (size_t i = 0; i < sample.labels.size(); ++i)
    runs += sample.labels[i] != -100 && (i == 0 || sample.labels[i - 1] == -100);
  return learnt[std::clamp<size_t>(runs, 1, learnt.size()) - 1];
}

/// The question and answer of that turn.
text::Turn turn_asked(const data::Row& row, size_t answer) {
  std::vector<text::Message> messages = row.messages();
  messages.resize(std::min(answer + 1, messages.size()));
  const std::vector<text::Turn> turns = text::turns_of(messages);
  return turns.empty() ? text::Turn{} : turns.back();
}

/// Ids of the reference and its end token: as in the sample, or more if it was truncated.
int64_t answer_tokens(const data::Sample& sample, const data::Sample& prompt,
                      const std::string& reference, const text::Tokenizer& tokenizer) {
  return std::max(
      static_cast<int64_t>(sample.input_ids.size()) - static_cast<int64_t>(prompt.input_ids.size()),
      static_cast<int64_t>(tokenizer.encode(reference).size()));
}

/// Indices of parts of at most `most` positions, including padding; 0: one part.
std::vector<size_t> part_starts(const std::vector<int64_t>& lengths, int64_t most) {
  std::vector<size_t> starts;
  int64_t longest = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const int64_t length = lengths[i];
    longest = std::max(longest, length);
    const bool fits = !starts.empty() &&
                      (most == 0 || longest * static_cast<int64_t>(i - starts.back() + 1) <= most);
    if (fits) continue;
    starts.push_back(i);
    longest = length;
  }
  return starts;
}

/// Scores an answer by the metric; captions are scored together at the end.
void judge(const Evaluation& of, EvalRecord& record) {
  record.answered = true;
  if (record.references.empty()) return;
  const auto equals = [&](const std::string& right) { return record.answer == trimmed(right); };
  record.match = std::ranges::any_of(record.references, equals);
  const std::optional<double> score =
      score_answer(of.options.metric, record.answer, record.references, record.question);
  record.score = score.value_or(0);
}

/// The prompts of a batch's rows.
struct Questions {
  std::vector<data::Sample> prompts;
  std::vector<const data::Sample*> wholes;  // the row of each
  std::vector<EvalRecord*> records;
  int64_t most_tokens = 0;  // of an answer
};

Questions questions_of(const Evaluation& of, const std::vector<data::Sample>& samples,
                       std::vector<EvalRecord>& records) {
  Questions asked;
  int64_t longest = 0;
  bool as_long = of.options.metric == Metric::kExact;  // as the reference
  for (size_t i = 0; i < records.size(); ++i) {
    const data::Row row = of.dataset.row(records[i].index);
    const size_t answer = answer_asked(samples[i], row, records[i].open);
    const text::Turn turn = turn_asked(row, answer);
    records[i].question = turn.question;
    records[i].reference = turn.answer;
    records[i].references = row.answers;
    if (row.answers.empty() && !records[i].open) records[i].references = {turn.answer};
    if (records[i].supervised == 0 && !records[i].open) continue;
    asked.prompts.push_back(
        data::encode_question(row, answer, samples[i], of.tokenizer, of.encode));
    asked.wholes.push_back(&samples[i]);
    asked.records.push_back(&records[i]);
    longest = std::max(longest,
                       answer_tokens(samples[i], asked.prompts.back(), turn.answer, of.tokenizer));
    as_long = as_long && !records[i].open && row.answers.empty();
  }
  asked.most_tokens = of.options.decode.max_new_tokens;
  if (as_long) asked.most_tokens = std::min(asked.most_tokens, exact_answer_tokens(longest));
  return asked;
}

/// Whether one pass over the rows computes their losses and begins their answers.
bool in_one_pass(const Evaluation& of, const Questions& asked) {
  if (!of.options.loss || !of.model->is_causal()) return false;
  for (size_t i = 0; i < asked.prompts.size(); ++i) {
    const std::vector<int64_t>&prompt = asked.prompts[i].input_ids,
          &whole = asked.wholes[i]->input_ids;
    if (prompt.empty() || prompt.size() > whole.size() ||
        !std::equal(prompt.begin(), prompt.end(), whole.begin()))
      return false;
  }
  return true;
}

void answer_batch(const Evaluation& of, const std::vector<data::Sample>& samples,
                  std::vector<EvalRecord>& records) {
  const Questions asked = questions_of(of, samples, records);
  const bool one_pass = in_one_pass(of, asked);
  if (of.options.loss && !one_pass) score_batch(of, samples, records);
  if (requested_signal() != 0) return;
  GenerateOptions options = of.options.decode;
  options.max_new_tokens = asked.most_tokens;
  options.seed += static_cast<uint64_t>(records.front().index);  // separate draws for each row
  options.on_token = [&, tokens = int64_t{0}](size_t, int64_t) mutable {
    of.phase.tokens(++tokens);
  };
  const StopStrings stop(of.tokenizer, of.options.stop);
  options.stops = {};
  if (!stop.empty()) options.stops = [&](const auto& answer) { return stop.ends(answer); };
  std::vector<Generated> answers;
  std::vector<int64_t> lengths;
  for (size_t i = 0; i < asked.prompts.size(); ++i)
    lengths.push_back(std::ssize((one_pass ? *asked.wholes[i] : asked.prompts[i]).input_ids));
  const std::vector<size_t> starts = part_starts(lengths, of.options.max_tokens);
  for (size_t part = 0; part < starts.size() && requested_signal() == 0; ++part) {
    const auto from = static_cast<std::ptrdiff_t>(starts[part]),
               to = static_cast<std::ptrdiff_t>(part + 1 < starts.size() ? starts[part + 1]
                                                                         : lengths.size());
    const std::vector<const data::Sample*> wholes(asked.wholes.begin() + from,
                                                  asked.wholes.begin() + to);
    for (Generated& answer : generate_batch(
             of.model, {asked.prompts.begin() + from, asked.prompts.begin() + to}, of.encode,
             options, of.options.compute, one_pass ? wholes : std::vector<const data::Sample*>()))
      answers.push_back(std::move(answer));
  }
  for (size_t i = 0; i < answers.size(); ++i) {  // after a signal the last ones are missing
    EvalRecord& record = *asked.records[i];
    if (one_pass) set_loss(of, *asked.wholes[i], answers[i].logprobs, record);
    if (answers[i].bad) {
      if (!record.bad) record.bad = std::move(answers[i].bad);
      continue;
    }
    record.answer = std::string(trimmed(stop.cut(of.tokenizer.decode(answers[i].ids))));
    judge(of, record);
  }
  of.phase.tokens(0);
}

std::vector<EvalRecord> records_of(const Evaluation& of, const std::vector<data::Sample>& samples,
                                   const std::vector<int64_t>& indices) {
  const size_t together = static_cast<size_t>(samples_together(of.options));
  std::vector<EvalRecord> records(samples.size() / together);
  for (size_t i = 0; i < records.size(); ++i) {
    const size_t first = i * together;
    records[i].index = indices[first];
    records[i].id = samples[first].id;
    records[i].supervised = samples[first].supervised();
    if (!of.encode.open_questions) continue;
    const data::Row row = of.dataset.row(indices[first]);
    records[i].open = !row.messages().empty() && row.messages().back().role != "assistant";
  }
  return records;
}

/// Of rows of pairs, the chosen sides: those that are answered.
void keep_chosen(std::vector<data::Sample>& samples, std::vector<int64_t>& indices) {
  for (size_t i = 1; 2 * i < samples.size(); ++i) {
    samples[i] = std::move(samples[2 * i]);
    indices[i] = indices[2 * i];
  }
  samples.resize(samples.size() / 2);
  indices.resize(samples.size());
}

}  // namespace

int64_t rows_together(const EvalOptions& options) {
  const bool uses_kl = options.preference != nullptr && options.preference->uses_kl();
  return uses_kl ? options.group : options.batch_size;
}

int64_t exact_answer_tokens(int64_t reference) { return 2 * reference + 16; }

EvalResult evaluate(family::Model& model, const data::Dataset& dataset,
                    const text::Tokenizer& tokenizer, const data::EncodeOptions& encode,
                    const EvalOptions& options,
                    const std::function<void(const EvalRecord&)>& each) {
  EvalResult result;
  const int64_t size = options.limit > 0 ? std::min(options.limit, dataset.size()) : dataset.size();
  Phase phase(options.phase, size, "the " + options.phase);
  const Evaluation evaluation{model, dataset, tokenizer, encode, options, phase};
  const bool uses_kl = options.preference != nullptr && options.preference->uses_kl();
  const int64_t batch_size =
      uses_kl ? std::gcd(options.batch_size, options.group) : options.batch_size;
  data::Loader loader(dataset, {.batch_size = batch_size,
                                .grad_accum = rows_together(options) / batch_size,
                                .workers = options.workers,
                                .shuffle = false,
                                .skip_bad = encode.skip_bad,
                                .max_tokens = options.max_tokens});
  for (int64_t seen = 0; seen < size && !result.stopped;) {
    data::StepSamples step = loader.next();
    result.skipped.insert(result.skipped.end(), step.skipped.begin(), step.skipped.end());
    result.skipped_indices.insert(result.skipped_indices.end(), step.skipped_indices.begin(),
                                  step.skipped_indices.end());
    seen += static_cast<int64_t>(step.skipped.size());
    const double kl = uses_kl ? kl_of(evaluation, step.micro) : 0;
    for (size_t micro = 0; micro < step.micro.size() && seen < size && !result.stopped; ++micro) {
      std::vector<data::Sample>& samples = step.micro[micro];
      if (encode.pairs && options.preference == nullptr) keep_chosen(samples, step.indices[micro]);
      const int64_t together = samples_together(options);
      samples.resize(static_cast<size_t>(std::min((size - seen) * together, std::ssize(samples))));
      seen += std::ssize(samples) / together;
      std::vector<EvalRecord> records = records_of(evaluation, samples, step.indices[micro]);
      const auto stopped = [&] { return result.stopped = requested_signal() != 0; };
      if (stopped()) break;
      if (options.preference != nullptr) {
        score_preferences(evaluation, samples, kl, records);
      } else if (options.answers) {
        answer_batch(evaluation, samples, records);
      } else if (options.loss) {
        score_batch(evaluation, samples, records);
      }
      if (stopped()) break;
      for (EvalRecord& record : records) {
        if (record.open) {  // only the end token: no answer
          record.loss = 0;
          record.supervised = 0;
        }
        if (each) each(record);
        result.records.push_back(std::move(record));
      }
      phase.done(seen);
    }
  }
  sum_up(result, options.metric, options.preference);
  return result;
}

data::Sample question_of(const data::Sample& sample, const data::Row& row,
                         const text::Tokenizer& tokenizer, const data::EncodeOptions& encode) {
  return data::encode_question(row, answer_asked(sample, row, /*open=*/false), sample, tokenizer,
                               encode);
}

}  // namespace lft::infer
