#include "src/infer/evaluate.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <iterator>

#include "models/ops/core/precision.h"
#include "src/base/signals.h"
#include "src/data/batch.h"
#include "src/data/loader.h"
#include "src/infer/generate.h"

namespace lft::infer {
namespace {

/// What every batch of an evaluation takes.
struct Evaluation {
  family::Model& model;
  const data::Dataset& dataset;
  const text::Tokenizer& tokenizer;
  const data::EncodeOptions& encode;
  const EvalOptions& options;
};

/// Teacher-forced: every supervised token's log-probability, split back to the rows.
void score_batch(const Evaluation& of, const std::vector<data::Sample>& samples,
                 std::vector<EvalRecord>& records) {
  at::NoGradGuard no_grad;
  ops::ComputeDtypeGuard guard(of.options.compute);
  if (std::all_of(records.begin(), records.end(),
                  [](const EvalRecord& record) { return record.supervised == 0; }))
    return;
  const at::Device device = of.model->language_model->parameters().front().device();
  const family::Batch batch = data::make_batch(
      {.encode = of.encode, .device = device, .packed = of.options.max_tokens > 0}, samples);
  const at::Tensor logprobs =
      of.model->supervised_logprobs(batch).to(at::kCPU, at::kDouble).contiguous();
  const double* next = logprobs.const_data_ptr<double>();
  for (EvalRecord& record : records) {
    double sum = 0;
    for (int64_t k = 0; k < record.supervised; ++k) sum -= *next++;
    record.loss = record.supervised > 0 ? sum / static_cast<double>(record.supervised) : 0;
  }
}

/// The turn whose answer prompt_of() cuts off. Every answer that is learnt is a run of supervised
/// tokens, and truncation takes from the end; where it left no answer, the first turn.
text::Turn last_turn(const data::Sample& sample, const data::Row& row) {
  std::vector<text::Turn> turns;
  std::ranges::copy_if(row.turns, std::back_inserter(turns), &text::Turn::learnt);
  if (turns.empty()) return row.turns.empty() ? text::Turn{} : row.turns.front();
  size_t runs = 0;
  for (size_t i = 0; i < sample.labels.size(); ++i)
    runs += sample.labels[i] != -100 && (i == 0 || sample.labels[i - 1] == -100);
  return turns[std::clamp<size_t>(runs, 1, turns.size()) - 1];
}

/// Ids of the reference and its end token: as the sample has them, or more where it was truncated.
int64_t answer_tokens(const data::Sample& sample, const std::string& reference,
                      const text::Tokenizer& tokenizer) {
  return std::max<int64_t>(sample.input_ids.size() - prompt_of(sample).input_ids.size(),
                           tokenizer.encode(reference).size());
}

/// Places in `prompts` where a part of at most `most` positions begins, padding counted; 0: one
/// part.
std::vector<size_t> part_starts(const std::vector<data::Sample>& prompts, int64_t most) {
  std::vector<size_t> starts;
  int64_t longest = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto length = static_cast<int64_t>(prompts[i].input_ids.size());
    longest = std::max(longest, length);
    const bool fits = !starts.empty() &&
                      (most == 0 || longest * static_cast<int64_t>(i - starts.back() + 1) <= most);
    if (fits) continue;
    starts.push_back(i);
    longest = length;
  }
  return starts;
}

void answer_batch(const Evaluation& of, const std::vector<data::Sample>& samples,
                  std::vector<EvalRecord>& records) {
  std::vector<data::Sample> prompts;
  std::vector<EvalRecord*> asked;
  int64_t longest = 0;
  for (size_t i = 0; i < records.size(); ++i) {
    const text::Turn turn = last_turn(samples[i], of.dataset.row(records[i].index));
    records[i].question = turn.question;
    records[i].reference = turn.answer;
    if (records[i].supervised == 0) continue;
    prompts.push_back(prompt_of(samples[i]));
    asked.push_back(&records[i]);
    longest = std::max(longest, answer_tokens(samples[i], turn.answer, of.tokenizer));
  }
  // Twice the reference and a little more is enough to know that an answer is another one.
  const GenerateOptions options{
      .max_new_tokens = std::min(of.options.max_new_tokens, 2 * longest + 16), .on_token = {}};
  std::vector<std::vector<int64_t>> answers;
  const std::vector<size_t> starts = part_starts(prompts, of.options.max_tokens);
  for (size_t part = 0; part < starts.size(); ++part) {
    const auto begin = prompts.begin() + static_cast<std::ptrdiff_t>(starts[part]);
    const auto end = part + 1 < starts.size()
                         ? prompts.begin() + static_cast<std::ptrdiff_t>(starts[part + 1])
                         : prompts.end();
    for (std::vector<int64_t>& answer :
         generate_batch(of.model, {begin, end}, of.encode, options, of.options.compute))
      answers.push_back(std::move(answer));
  }
  for (size_t i = 0; i < asked.size(); ++i) {
    asked[i]->answered = true;
    asked[i]->answer = trim(of.tokenizer.decode(answers[i]));
    asked[i]->match = asked[i]->answer == trim(asked[i]->reference);
  }
}

std::vector<EvalRecord> records_of(const std::vector<data::Sample>& samples,
                                   const std::vector<int64_t>& indices) {
  std::vector<EvalRecord> records(samples.size());
  for (size_t i = 0; i < samples.size(); ++i) {
    records[i].index = indices[i];
    records[i].id = samples[i].id;
    records[i].supervised = samples[i].supervised();
  }
  return records;
}

void add(EvalResult& result, const EvalRecord& record) {
  ++result.samples;
  result.answered += record.answered ? 1 : 0;
  result.supervised += record.supervised;
  result.loss += record.loss * static_cast<double>(record.supervised);
  result.exact_match += record.match ? 1 : 0;
}

}  // namespace

EvalResult evaluate(family::Model& model, const data::Dataset& dataset,
                    const text::Tokenizer& tokenizer, const data::EncodeOptions& encode,
                    const EvalOptions& options,
                    const std::function<void(const EvalRecord&)>& each) {
  const Evaluation evaluation{model, dataset, tokenizer, encode, options};
  EvalResult result;
  const int64_t size = options.limit > 0 ? std::min(options.limit, dataset.size()) : dataset.size();
  data::Loader loader(dataset, {.batch_size = options.batch_size,
                                .grad_accum = 1,
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
    for (size_t micro = 0; micro < step.micro.size() && seen < size && !result.stopped; ++micro) {
      std::vector<data::Sample>& samples = step.micro[micro];
      samples.resize(
          static_cast<size_t>(std::min(size - seen, static_cast<int64_t>(samples.size()))));
      seen += static_cast<int64_t>(samples.size());
      std::vector<EvalRecord> records = records_of(samples, step.indices[micro]);
      if (options.loss) score_batch(evaluation, samples, records);
      if (options.answers) answer_batch(evaluation, samples, records);
      result.stopped = requested_signal() != 0;
      if (result.stopped) break;
      for (EvalRecord& record : records) {
        if (each) each(record);
        result.records.push_back(std::move(record));
      }
    }
  }
  sum_up(result);
  return result;
}

void sum_up(EvalResult& result) {
  for (const EvalRecord& record : result.records) add(result, record);
  if (result.supervised > 0) result.loss /= static_cast<double>(result.supervised);
  if (result.answered > 0) result.exact_match /= static_cast<double>(result.answered);
}

data::Sample prompt_of(const data::Sample& sample) {
  auto cut = static_cast<int64_t>(sample.labels.size());
  while (cut > 0 && sample.labels[cut - 1] == -100) --cut;  // after the last answer
  while (cut > 0 && sample.labels[cut - 1] != -100) --cut;
  data::Sample prompt = sample;
  prompt.input_ids.resize(cut);
  prompt.labels.assign(cut, -100);
  return prompt;
}

std::string trim(const std::string& text) {
  const char* const space = " \t\r\n\v\f";
  const size_t begin = text.find_first_not_of(space);
  return begin == std::string::npos ? ""
                                    : text.substr(begin, text.find_last_not_of(space) - begin + 1);
}

}  // namespace lft::infer
