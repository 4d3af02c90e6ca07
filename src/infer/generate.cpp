#include "src/infer/generate.h"

#include "src/base/signals.h"

namespace lft::infer {

std::vector<std::vector<int64_t>> generate_batch(family::Model& model,
                                                 const std::vector<data::Sample>& prompts,
                                                 const data::EncodeOptions& encode,
                                                 const GenerateOptions& options,
                                                 at::ScalarType compute) {
  std::vector<std::vector<int64_t>> answers(prompts.size());
  std::vector<Decoding::Prompt> begun;
  for (size_t row = 0; row < prompts.size(); ++row) {
    begun.push_back({.key = row, .sample = &prompts[row], .options = options});
    begun.back().options.seed += row;
    begun.back().options.on_token = [&](size_t key, int64_t id) {
      answers[key].push_back(id);
      if (options.on_token) options.on_token(key, id);
    };
  }
  Decoding decoding(model, encode, compute);
  decoding.begin(begun);
  while (decoding.open() > 0 && requested_signal() == 0) decoding.step();
  return answers;
}

std::vector<int64_t> generate(family::Model& model, const data::Sample& prompt,
                              const data::EncodeOptions& encode, const GenerateOptions& options,
                              at::ScalarType compute) {
  return generate_batch(model, {prompt}, encode, options, compute).front();
}

}  // namespace lft::infer
