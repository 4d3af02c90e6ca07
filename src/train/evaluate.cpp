#include "src/train/evaluate.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "models/ops/precision.h"
#include "src/base/signals.h"
#include "src/data/loader.h"
#include "src/train/generate.h"

namespace lft {
namespace {

/// Teacher-forced: every supervised token's log-probability, split back to the rows.
void score_batch(Llava& model, const std::vector<Sample>& samples, const EncodeOptions& encode, at::ScalarType compute, at::Device device,
                 std::vector<EvalRecord>& records) {
  at::NoGradGuard no_grad;
  ComputeDtypeGuard guard(compute);
  if (std::all_of(records.begin(), records.end(), [](const EvalRecord& record) { return record.supervised == 0; })) return;
  const at::Tensor logprobs = model->supervised_logprobs(collate(samples, encode, device)).to(at::kCPU, at::kDouble).contiguous();
  const double* next = logprobs.const_data_ptr<double>();
  for (EvalRecord& record : records) {
    double sum = 0;
    for (int64_t k = 0; k < record.supervised; ++k) sum -= *next++;
    record.loss = record.supervised > 0 ? sum / static_cast<double>(record.supervised) : 0;
  }
}

/// The turn whose answer prompt_of() cuts off. Every answer is a run of supervised tokens, and truncation takes from the end; where it left
/// no answer, the first turn.
Turn last_turn(const Sample& sample, const Row& row) {
  if (row.turns.empty()) return {};
  size_t runs = 0;
  for (size_t i = 0; i < sample.labels.size(); ++i) runs += sample.labels[i] != -100 && (i == 0 || sample.labels[i - 1] == -100);
  return row.turns[std::clamp<size_t>(runs, 1, row.turns.size()) - 1];
}

/// Ids of the reference and its end token: as the sample has them, or more where it was truncated.
int64_t answer_tokens(const Sample& sample, const std::string& reference, const Tokenizer& tokenizer) {
  return std::max<int64_t>(sample.input_ids.size() - prompt_of(sample).input_ids.size(), tokenizer.encode(reference).size());
}

void answer_batch(Llava& model, const std::vector<Sample>& samples, const Dataset& dataset, const Tokenizer& tokenizer,
                  const EncodeOptions& encode, int64_t max_new_tokens, at::ScalarType compute, std::vector<EvalRecord>& records) {
  std::vector<Sample> prompts;
  std::vector<EvalRecord*> asked;
  int64_t longest = 0;
  for (size_t i = 0; i < records.size(); ++i) {
    const Turn turn = last_turn(samples[i], dataset.row(records[i].index));
    records[i].question = turn.question;
    records[i].reference = turn.answer;
    if (records[i].supervised == 0) continue;
    prompts.push_back(prompt_of(samples[i]));
    asked.push_back(&records[i]);
    longest = std::max(longest, answer_tokens(samples[i], turn.answer, tokenizer));
  }
  // Twice the reference and a little more is enough to know that an answer is another one.
  const GenerateOptions options{.max_new_tokens = std::min(max_new_tokens, 2 * longest + 16), .on_token = {}};
  const std::vector<std::vector<int64_t>> answers = generate_batch(model, prompts, encode, options, compute);
  for (size_t i = 0; i < asked.size(); ++i) {
    asked[i]->answered = true;
    asked[i]->answer = trim(tokenizer.decode(answers[i]));
    asked[i]->match = asked[i]->answer == trim(asked[i]->reference);
  }
}

void add(EvalResult& result, const EvalRecord& record) {
  ++result.samples;
  result.answered += record.answered ? 1 : 0;
  result.supervised += record.supervised;
  result.loss += record.loss * static_cast<double>(record.supervised);
  result.exact_match += record.match ? 1 : 0;
}

}  // namespace

EvalResult evaluate(Llava& model, const Dataset& dataset, const Tokenizer& tokenizer, const EncodeOptions& encode,
                    const EvalOptions& options, at::ScalarType compute, const std::function<void(const EvalRecord&)>& each) {
  EvalResult result;
  const int64_t size = options.limit > 0 ? std::min(options.limit, dataset.size()) : dataset.size();
  const at::Device device = model->language_model->parameters().front().device();
  Loader loader(
      dataset,
      {.batch_size = options.batch_size, .grad_accum = 1, .workers = options.workers, .shuffle = false, .skip_bad = encode.skip_bad});
  for (int64_t seen = 0; seen < size;) {
    StepSamples step = loader.next();
    result.skipped.insert(result.skipped.end(), step.skipped.begin(), step.skipped.end());
    seen += static_cast<int64_t>(step.skipped.size());
    if (step.micro.empty()) continue;
    std::vector<Sample>& samples = step.micro.front();
    samples.resize(std::clamp<int64_t>(size - seen, 0, static_cast<int64_t>(samples.size())));
    if (samples.empty()) break;
    seen += static_cast<int64_t>(samples.size());
    std::vector<EvalRecord> records(samples.size());
    for (size_t i = 0; i < samples.size(); ++i) {
      records[i].index = step.indices.front()[i];
      records[i].id = samples[i].id;
      records[i].supervised = samples[i].supervised();
    }
    if (options.loss) score_batch(model, samples, encode, compute, device, records);
    if (options.answers) answer_batch(model, samples, dataset, tokenizer, encode, options.max_new_tokens, compute, records);
    if (requested_signal() != 0) {
      result.stopped = true;
      break;
    }
    for (EvalRecord& record : records) {
      add(result, record);
      if (each) each(record);
      result.records.push_back(std::move(record));
    }
  }
  if (result.supervised > 0) result.loss /= static_cast<double>(result.supervised);
  if (result.answered > 0) result.exact_match /= static_cast<double>(result.answered);
  return result;
}

Sample prompt_of(const Sample& sample) {
  auto cut = static_cast<int64_t>(sample.labels.size());
  while (cut > 0 && sample.labels[cut - 1] == -100) --cut;  // behind the last answer
  while (cut > 0 && sample.labels[cut - 1] != -100) --cut;
  Sample prompt = sample;
  prompt.input_ids.resize(cut);
  prompt.labels.assign(cut, -100);
  return prompt;
}

std::string trim(const std::string& text) {
  const char* const space = " \t\r\n\v\f";
  const size_t begin = text.find_first_not_of(space);
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(space) - begin + 1);
}

}  // namespace lft
