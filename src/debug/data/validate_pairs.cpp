#include "src/debug/data/validate_pairs.h"

#include <cctype>

namespace lft::debug {
namespace {

constexpr size_t kMuchLonger = 3;

std::string without_spaces(const std::string& text) {
  std::string kept;
  for (const char c : text)
    if (std::isspace(static_cast<unsigned char>(c)) == 0) kept += c;
  return kept;
}

/// The texts of a side before its last answer.
std::vector<std::string> prompt_of(const data::Row& side) {
  std::vector<std::string> texts;
  for (const text::Turn& turn : side.turns()) {
    texts.push_back(turn.question);
    texts.push_back(turn.answer);
  }
  if (!texts.empty()) texts.pop_back();
  if (const std::string* system = text::system_of(side.messages())) texts.push_back(*system);
  return texts;
}

}  // namespace

std::vector<DataProblem> pair_problems(const data::Row& row) {
  std::vector<DataProblem> problems;
  if (!row.rejected || row.turns().empty() || row.rejected->turns().empty()) return problems;
  const auto found = [&](DataFault fault, const std::string& reason) {
    problems.push_back(
        {.fault = fault, .where = row.where, .id = row.id, .reason = reason, .next = {}});
  };
  const std::string chosen = row.turns().back().answer,
                    rejected = row.rejected->turns().back().answer;
  const bool same_images = row.images == row.rejected->images;
  if (chosen == rejected && same_images) {
    found(DataFault::kEqualAnswers, "the chosen and the rejected answer are equal");
  } else if (same_images && without_spaces(chosen) == without_spaces(rejected)) {
    found(DataFault::kSpaceOnly, "the two answers differ only in white space");
  }
  if (chosen.size() > kMuchLonger * rejected.size())
    found(DataFault::kLongerChosen, "the chosen answer has " + std::to_string(chosen.size()) +
                                        " bytes, the rejected one " +
                                        std::to_string(rejected.size()));
  if (prompt_of(row) != prompt_of(*row.rejected))
    found(DataFault::kOtherPrompt, "the two answers have different prompts");
  return problems;
}

}  // namespace lft::debug
