// A sample up to its last answer, from its labels alone.
#pragma once
#include "src/data/store/sample.h"

namespace lft::test {

/// The prompt for generation. Empty without a supervised token.
inline data::Sample prompt_of(const data::Sample& sample) {
  auto cut = static_cast<int64_t>(sample.labels.size());
  while (cut > 0 && sample.labels[cut - 1] == -100) --cut;  // after the last answer
  while (cut > 0 && sample.labels[cut - 1] != -100) --cut;
  data::Sample prompt = sample;
  prompt.input_ids.resize(cut);
  prompt.labels.assign(cut, -100);
  return prompt;
}

}  // namespace lft::test
