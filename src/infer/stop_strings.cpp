#include "src/infer/stop_strings.h"

#include <algorithm>

namespace lft::infer {

StopStrings::StopStrings(const text::Tokenizer& tokenizer, std::vector<std::string> texts)
    : tokenizer_(tokenizer), texts_(std::move(texts)) {
  std::erase(texts_, "");
}

bool StopStrings::ends(const std::vector<int64_t>& answer) const {
  return !texts_.empty() && are_in(tokenizer_.decode(answer));
}

bool StopStrings::are_in(const std::string& answer) const {
  return std::ranges::any_of(
      texts_, [&](const std::string& stop) { return answer.find(stop) != std::string::npos; });
}

std::string StopStrings::cut(const std::string& answer) const {
  size_t end = answer.size();
  for (const std::string& stop : texts_) end = std::min(end, answer.find(stop));
  return answer.substr(0, end);
}

std::string StopStrings::settled(const std::string& answer) const {
  std::string shown = cut(answer);
  size_t begun = 0;
  for (const std::string& stop : texts_) {
    for (size_t length = std::min(stop.size() - 1, shown.size()); length > begun; --length) {
      if (!shown.ends_with(stop.substr(0, length))) continue;
      begun = length;
    }
  }
  shown.resize(shown.size() - begun);
  return shown;
}

}  // namespace lft::infer
