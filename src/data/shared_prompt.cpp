#include "src/data/shared_prompt.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "src/data/same_images.h"

namespace lft::data {
namespace {

/// Of the part before the first supervised token.
std::span<const int64_t> prompt_of(const Sample& sample) {
  const auto answer =
      std::ranges::find_if(sample.labels, [](int64_t label) { return label != kIgnoreIndex; });
  return std::span(sample.input_ids).first(static_cast<size_t>(answer - sample.labels.begin()));
}

}  // namespace

int64_t shared_prompt(const Sample& chosen, const Sample& rejected,
                      const family::ModelConfig& config) {
  const llama::LlamaConfig& text = config.text;
  if (text.rope_scaling.follows_length() || text.local_rope_scaling.follows_length()) return 0;
  const std::span<const int64_t> of_chosen = prompt_of(chosen), of_rejected = prompt_of(rejected);
  const auto equal = std::ranges::mismatch(of_chosen, of_rejected).in2 - of_rejected.begin();
  const int64_t shared = std::max<int64_t>(0, equal - 1);
  const std::span<const int64_t> rest =
      std::span(rejected.input_ids).subspan(static_cast<size_t>(shared));
  return std::ranges::find(rest, config.image_token) == rest.end() ? shared : 0;
}

std::vector<int64_t> shared_in_batch(const std::vector<Sample>& samples) {
  std::vector<int64_t> shared(samples.size(), 0);
  bool any = false;
  for (size_t i = 1; i < samples.size(); ++i) {
    const Sample &first = samples[i - 1], &second = samples[i];
    const auto count = static_cast<size_t>(second.shared);
    if (count == 0 || first.input_ids.size() <= count || !same_images(first, second) ||
        !std::equal(second.input_ids.begin(), second.input_ids.begin() + second.shared,
                    first.input_ids.begin()))
      continue;
    shared[i] = second.shared;
    any = true;
  }
  return any ? shared : std::vector<int64_t>();
}

int64_t packed_positions(const std::vector<Sample>& samples, bool share_prompts) {
  int64_t sum = 0;
  for (const Sample& sample : samples) sum += std::ssize(sample.input_ids);
  if (!share_prompts) return sum;
  const std::vector<int64_t> shared = shared_in_batch(samples);
  return sum - std::accumulate(shared.begin(), shared.end(), int64_t{0});
}

}  // namespace lft::data
