// The mismatched rows of KTO: the prompt of one row and the answer of another one.
#pragma once
#include <cstdint>
#include <vector>

#include "src/data/store/sample.h"

namespace lft::data {

/// The answer of a sample: its ids from the first supervised one to the end, and their labels.
struct Answer {
  std::vector<int64_t> ids, labels;
};
/// Without the positions of images, which belong to the prompt. Empty if nothing is supervised.
Answer answer_of(const Sample& sample, int64_t image_token);

/// The prompt of the sample, with its images, followed by the answer; at most `max_tokens`
/// positions, so that the end of the answer may be missing.
Sample with_answer(const Sample& sample, const Answer& answer, int64_t image_token,
                   int64_t max_tokens);

/// The samples of some micro-batches, each with the answer of the next sample of the global batch
/// instead of its own; the last one takes the answer of the first. `answers` are those of the
/// global batch, in which the samples begin at index `first`.
std::vector<std::vector<Sample>> with_next_answers(const std::vector<std::vector<Sample>>& micro,
                                                   const std::vector<Answer>& answers, size_t first,
                                                   int64_t image_token, int64_t max_tokens);

}  // namespace lft::data
