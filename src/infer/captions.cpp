#include "src/infer/captions.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <numeric>

#include "src/infer/captions_words.h"

namespace lft::infer {
namespace {

constexpr size_t kLongest = 4;  // words of an n-gram
using Words = std::vector<std::string>;
using Counts = std::array<std::map<Words, int64_t>, kLongest>;  // of n-grams by length - 1

Counts count_grams(const Words& words) {
  Counts counts;
  for (size_t n = 1; n <= kLongest; ++n) {
    for (size_t at = 0; at + n <= words.size(); ++at) {
      const auto begin = words.begin() + static_cast<std::ptrdiff_t>(at);
      ++counts[n - 1][Words(begin, begin + static_cast<std::ptrdiff_t>(n))];
    }
  }
  return counts;
}

/// A caption and its references in words.
struct Cooked {
  Words words;
  Counts counts;
  std::vector<Words> references;
  std::vector<Counts> reference_counts;
};

Cooked cook(const Caption& caption) {
  Cooked cooked{.words = caption_words(caption.answer),
                .counts = {},
                .references = {},
                .reference_counts = {}};
  cooked.counts = count_grams(cooked.words);
  for (const std::string& reference : caption.references) {
    cooked.references.push_back(caption_words(reference));
    cooked.reference_counts.push_back(count_grams(cooked.references.back()));
  }
  return cooked;
}

/// The length of the reference that is nearest in length, the shorter of two.
size_t nearest_length(const Cooked& caption) {
  size_t nearest = caption.references.front().size();
  const auto distance = [&](size_t length) {
    return std::abs(static_cast<int64_t>(length) - static_cast<int64_t>(caption.words.size()));
  };
  for (const Words& reference : caption.references) {
    const size_t length = reference.size();
    if (std::pair(distance(length), length) < std::pair(distance(nearest), nearest))
      nearest = length;
  }
  return nearest;
}

double bleu4_of(const std::vector<Cooked>& captions) {
  constexpr double kTiny = 1e-15, kSmall = 1e-9;  // as in the reference implementation
  std::array<double, kLongest> guessed{}, correct{};
  double length = 0, reference_length = 0;
  for (const Cooked& caption : captions) {
    length += static_cast<double>(caption.words.size());
    reference_length += static_cast<double>(nearest_length(caption));
    for (size_t n = 0; n < kLongest; ++n) {
      if (caption.words.size() > n) guessed[n] += static_cast<double>(caption.words.size() - n);
      for (const auto& [gram, count] : caption.counts[n]) {
        int64_t most = 0;
        for (const Counts& reference : caption.reference_counts) {
          const auto found = reference[n].find(gram);
          if (found != reference[n].end()) most = std::max(most, found->second);
        }
        correct[n] += static_cast<double>(std::min(most, count));
      }
    }
  }
  double product = 1;
  for (size_t n = 0; n < kLongest; ++n) product *= (correct[n] + kTiny) / (guessed[n] + kSmall);
  const double bleu = std::pow(product, 1.0 / kLongest),
               ratio = (length + kTiny) / (reference_length + kSmall);
  return ratio < 1 ? bleu * std::exp(1 - 1 / ratio) : bleu;
}

/// n-grams weighted by inverse document frequency over the references.
struct Weighed {
  std::array<std::map<Words, double>, kLongest> grams;
  std::array<double, kLongest> norms{};
  double length = 0;  // in pairs of words, as counted by the reference implementation
};

class Cider {
 public:
  explicit Cider(const std::vector<Cooked>& captions)
      : log_captions_(std::log(static_cast<double>(captions.size()))) {
    for (const Cooked& caption : captions) {
      for (size_t n = 0; n < kLongest; ++n) {
        std::map<Words, int64_t> seen;
        for (const Counts& reference : caption.reference_counts) {
          for (const auto& [gram, count] : reference[n]) seen[gram] = 1;
        }
        for (const auto& [gram, one] : seen) ++captions_with_[gram];
      }
    }
  }

  double score(const Cooked& caption) const {
    const Weighed answer = weigh(caption.counts);
    double sum = 0;
    for (const Counts& counts : caption.reference_counts) sum += likeness(answer, weigh(counts));
    return 10 * sum / static_cast<double>(caption.reference_counts.size());
  }

 private:
  Weighed weigh(const Counts& counts) const {
    Weighed weighed;
    for (size_t n = 0; n < kLongest; ++n) {
      double squares = 0;
      for (const auto& [gram, count] : counts[n]) {
        const auto found = captions_with_.find(gram);
        const double having =
                         found == captions_with_.end() ? 1 : static_cast<double>(found->second),
                     weight = static_cast<double>(count) * (log_captions_ - std::log(having));
        weighed.grams[n][gram] = weight;
        squares += weight * weight;
        if (n == 1) weighed.length += static_cast<double>(count);
      }
      weighed.norms[n] = std::sqrt(squares);
    }
    return weighed;
  }

  /// The mean over the n-gram lengths of clipped cosines, with a length penalty.
  static double likeness(const Weighed& answer, const Weighed& reference) {
    constexpr double kSigma = 6;
    const double delta = answer.length - reference.length;
    double sum = 0;
    for (size_t n = 0; n < kLongest; ++n) {
      double product = 0;
      for (const auto& [gram, weight] : answer.grams[n]) {
        const auto found = reference.grams[n].find(gram);
        if (found != reference.grams[n].end())
          product += std::min(weight, found->second) * found->second;
      }
      if (answer.norms[n] != 0 && reference.norms[n] != 0)
        product /= answer.norms[n] * reference.norms[n];
      sum += product * std::exp(-delta * delta / (2 * kSigma * kSigma));
    }
    return sum / kLongest;
  }

  double log_captions_;
  std::map<Words, int64_t> captions_with_;
};

}  // namespace

CaptionScores score_captions(const std::vector<Caption>& captions) {
  CaptionScores scores;
  if (captions.empty()) return scores;
  std::vector<Cooked> cooked;
  for (const Caption& caption : captions) cooked.push_back(cook(caption));
  scores.bleu4 = bleu4_of(cooked);
  const Cider cider(cooked);
  for (const Cooked& caption : cooked) scores.ciders.push_back(cider.score(caption));
  scores.cider = std::accumulate(scores.ciders.begin(), scores.ciders.end(), 0.0) /
                 static_cast<double>(captions.size());
  return scores;
}

}  // namespace lft::infer
