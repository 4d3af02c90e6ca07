#include "src/debug/data/validate_answers.h"

#include <algorithm>
#include <cctype>
#include <functional>

namespace lft::debug {
namespace {

constexpr size_t kEnoughRows = 8, kEnoughPairs = 10;
constexpr double kNearlyAll = 0.9, kAtMostHalf = 0.5;
constexpr size_t kShortestName = 3, kLongestName = 40;  // of an answer in an image's name

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

}  // namespace

size_t mix_hashes(size_t seed, size_t value) {
  return (seed ^ value) * 0x9E3779B97F4A7C15ULL + (seed >> 29U) + 1;
}

std::vector<ReplyHash> reply_hashes(const data::Row& row) {
  std::vector<ReplyHash> replies;
  const std::hash<std::string> hash;
  const std::string* system = text::system_of(row.messages());
  size_t context = system != nullptr ? hash(*system) : 0;
  for (const text::Turn& turn : row.turns()) {
    context = mix_hashes(context, hash(turn.question));
    const ReplyHash reply{context, hash(turn.answer)};
    if (turn.learnt) replies.push_back(reply);
    context = mix_hashes(context, reply.answer);
  }
  return replies;
}

std::optional<size_t> AnswerTally::add(size_t row, size_t images,
                                       const std::vector<ReplyHash>& replies) {
  std::optional<size_t> other;
  if (replies.empty()) return other;
  for (const ReplyHash& reply : replies) {
    const auto [first, fresh] =
        first_.emplace(mix_hashes(images, reply.context), First{reply.answer, row});
    if (!fresh && first->second.answer != reply.answer && !other) other = first->second.row;
  }
  seen_[row] = {true, mix_hashes(images, replies.front().context), replies.front().answer};
  for (const ReplyHash& reply : replies) {
    if (count_ == 0 && &reply == &replies.front()) answer_ = reply.answer;
    alike_ = alike_ && reply.answer == answer_;
  }
  ++count_;
  return other;
}

std::string AnswerTally::one_answer() const {
  return alike_ && count_ >= kEnoughRows ? "all " + std::to_string(count_) + " rows have one answer"
                                         : "";
}

AnswerTally::Agreement AnswerTally::by_repeated_inputs() const {
  Agreement result;
  std::unordered_map<size_t, size_t> last;  // the last row of each input
  for (size_t row = 0; row < seen_.size(); ++row) {
    if (!seen_[row].there) continue;
    const auto [before, fresh] = last.emplace(seen_[row].input, row);
    if (fresh) continue;
    for (size_t shift = 0; shift < 3; ++shift) {  // unsigned: row - 1 + shift
      const size_t a = before->second + shift - 1, b = row + shift - 1;
      if (a >= seen_.size() || b >= seen_.size() || !seen_[a].there || !seen_[b].there) continue;
      ++result.asked[shift];
      result.agree[shift] += seen_[a].answer == seen_[b].answer;
    }
    before->second = row;
  }
  return result;
}

AnswerTally::Agreement AnswerTally::by_image_names() const {
  Agreement result;
  for (size_t row = 1; row + 1 < rows_.size(); ++row) {
    if (!seen_[row - 1].there || !seen_[row].there || !seen_[row + 1].there) continue;
    if (rows_[row].images.size() != 1) continue;
    const std::string name = lower(rows_[row].images.front());
    for (size_t shift = 0; shift < 3; ++shift) {
      const std::string answer = rows_[row + shift - 1].turns().front().answer;
      ++result.asked[shift];
      result.agree[shift] += answer.size() >= kShortestName && answer.size() <= kLongestName &&
                             name.find(lower(answer)) != std::string::npos;
    }
  }
  return result;
}

std::string AnswerTally::Agreement::shift_text(const std::string& what) const {
  const auto share = [&](size_t shift) {
    return static_cast<double>(agree[shift]) / static_cast<double>(asked[shift]);
  };
  const auto of = [&](size_t shift) {
    return std::to_string(agree[shift]) + " of " + std::to_string(asked[shift]);
  };
  for (const size_t shift : {size_t{0}, size_t{2}}) {
    if (asked[1] < kEnoughPairs || asked[shift] < kEnoughPairs || share(1) > kAtMostHalf ||
        share(shift) < kNearlyAll)
      continue;
    return of(1) + " " + what + "; with the answer of the row " +
           (shift == 0 ? "before" : "after") + " " + of(shift) +
           " do: the answers seem to be one row too " + (shift == 0 ? "early" : "late");
  }
  return "";
}

std::string AnswerTally::shifted() const {
  const std::string repeated =
      by_repeated_inputs().shift_text("pairs of rows with the same images and text agree");
  return repeated.empty() ? by_image_names().shift_text("rows have an image named as their answer")
                          : repeated;
}

}  // namespace lft::debug
