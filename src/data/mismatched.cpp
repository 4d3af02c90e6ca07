#include "src/data/mismatched.h"

#include <algorithm>

namespace lft::data {
namespace {

/// The number of positions before the first supervised one; all positions if there is none.
int64_t prompt_length(const Sample& sample) {
  return std::ranges::find_if(sample.labels, [](int64_t label) { return label != kIgnoreIndex; }) -
         sample.labels.begin();
}

}  // namespace

Answer answer_of(const Sample& sample, int64_t image_token) {
  Answer answer;
  for (auto i = static_cast<size_t>(prompt_length(sample)); i < sample.input_ids.size(); ++i) {
    if (sample.input_ids[i] == image_token) continue;
    answer.ids.push_back(sample.input_ids[i]);
    answer.labels.push_back(sample.labels[i]);
  }
  return answer;
}

Sample with_answer(const Sample& sample, const Answer& answer, int64_t image_token,
                   int64_t max_tokens) {
  const int64_t prompt = prompt_length(sample);
  Sample result;
  result.id = sample.id;
  result.input_ids.assign(sample.input_ids.begin(), sample.input_ids.begin() + prompt);
  result.labels.assign(static_cast<size_t>(prompt), kIgnoreIndex);
  int64_t places = std::ranges::count(result.input_ids, image_token);
  for (const PixelImage& image : sample.images) {
    places -= image.positions;
    if (places < 0) break;  // an image of the answer
    result.images.push_back(image);
  }
  const auto rest = static_cast<std::ptrdiff_t>(
      std::clamp<int64_t>(max_tokens - prompt, 0, std::ssize(answer.ids)));
  result.input_ids.insert(result.input_ids.end(), answer.ids.begin(), answer.ids.begin() + rest);
  result.labels.insert(result.labels.end(), answer.labels.begin(), answer.labels.begin() + rest);
  return result;
}

std::vector<std::vector<Sample>> with_next_answers(const std::vector<std::vector<Sample>>& micro,
                                                   const std::vector<Answer>& answers, size_t first,
                                                   int64_t image_token, int64_t max_tokens) {
  std::vector<std::vector<Sample>> result;
  for (const std::vector<Sample>& samples : micro) {
    std::vector<Sample>& rows = result.emplace_back();
    for (const Sample& sample : samples)
      rows.push_back(
          with_answer(sample, answers[++first % answers.size()], image_token, max_tokens));
  }
  return result;
}

}  // namespace lft::data
