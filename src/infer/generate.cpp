#include "src/infer/generate.h"

#include "models/family/model.h"
#include "src/base/signals.h"

namespace lft::infer {

std::vector<Generated> generate_batch(family::Model& model,
                                      const std::vector<data::Sample>& prompts,
                                      const data::EncodeOptions& encode,
                                      const GenerateOptions& options, at::ScalarType compute,
                                      const std::vector<const data::Sample*>& wholes) {
  std::vector<Generated> answers(prompts.size());
  std::vector<Decoding::Prompt> begun;
  for (size_t row = 0; row < prompts.size(); ++row) {
    begun.push_back({.key = row, .sample = &prompts[row], .options = options});
    begun.back().options.seed += row;
    if (!wholes.empty()) {
      begun.back().whole = wholes[row];
      begun.back().logprobs = &answers[row].logprobs;
    }
    begun.back().options.on_token = [&](size_t key, int64_t id) {
      answers[key].ids.push_back(id);
      if (options.on_token) options.on_token(key, id);
    };
  }
  const auto end = [&](std::vector<FinishedAnswer> ended) {
    for (FinishedAnswer& one : ended) answers[one.key].bad = std::move(one.bad);
  };
  Decoding decoding(model, encode, compute);
  end(decoding.begin(begun));
  while (decoding.open() > 0 && requested_signal() == 0) end(decoding.step());
  return answers;
}

std::vector<int64_t> generate(family::Model& model, const data::Sample& prompt,
                              const data::EncodeOptions& encode, const GenerateOptions& options,
                              at::ScalarType compute, const text::Tokenizer* tokenizer) {
  const Generated answer = generate_batch(model, {prompt}, encode, options, compute).front();
  if (answer.bad)
    throw non_finite_error(row_text(prompt.id, *answer.bad, tokenizer), answer.bad->module,
                           compute);
  return answer.ids;
}

}  // namespace lft::infer
