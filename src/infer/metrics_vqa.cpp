#include "src/infer/metrics_vqa.h"

#include <cctype>
#include <map>
#include <set>

#include "src/infer/metrics.h"

namespace lft::infer {
namespace {

constexpr char kPunctuation[] = ";/[]\"{}()=+\\_-><@`,?!";

/// Contractions in their written form; each also matches without one of its apostrophes.
constexpr const char* kContractions[] = {
    "ain't",       "aren't",      "can't",          "could've",     "couldn't",
    "couldn't've", "didn't",      "doesn't",        "don't",        "hadn't",
    "hadn't've",   "hasn't",      "haven't",        "he'd",         "he'd've",
    "he's",        "how'd",       "how'll",         "how's",        "isn't",
    "it'd",        "it'd've",     "it'll",          "ma'am",        "mightn't",
    "mightn't've", "might've",    "mustn't",        "must've",      "needn't",
    "not've",      "o'clock",     "oughtn't",       "'ow's'at",     "shan't",
    "she'd've",    "should've",   "shouldn't",      "shouldn't've", "somebody'd've",
    "somebody'll", "somebody's",  "someone'd",      "someone'd've", "someone'll",
    "someone's",   "something'd", "something'd've", "something'll", "that's",
    "there'd",     "there'd've",  "there're",       "there's",      "they'd",
    "they'd've",   "they'll",     "they're",        "they've",      "'twas",
    "wasn't",      "we'd've",     "we've",          "weren't",      "what'll",
    "what're",     "what's",      "what've",        "when's",       "where'd",
    "where's",     "where've",    "who'd",          "who'd've",     "who'll",
    "who's",       "who've",      "why'll",         "why're",       "why's",
    "won't",       "would've",    "wouldn't",       "wouldn't've",  "y'all",
    "y'all'll",    "y'all'd've",  "you'd",          "you'd've",     "you'll",
    "you're",      "you've"};

const std::map<std::string, std::string>& contractions() {
  static const std::map<std::string, std::string> kAll = [] {
    std::map<std::string, std::string> all;
    for (const std::string written : kContractions) {
      for (size_t at = written.find('\''); at != std::string::npos;
           at = written.find('\'', at + 1)) {
        std::string without = written;
        all[without.erase(at, 1)] = written;
      }
    }
    all["somebody'd"] = "somebodyd";
    return all;
  }();
  return kAll;
}

const std::map<std::string, std::string>& digits() {
  static const std::map<std::string, std::string> kDigits = {
      {"none", "0"}, {"zero", "0"}, {"one", "1"},   {"two", "2"},   {"three", "3"}, {"four", "4"},
      {"five", "5"}, {"six", "6"},  {"seven", "7"}, {"eight", "8"}, {"nine", "9"},  {"ten", "10"}};
  return kDigits;
}

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

/// Whether there is a comma between digits.
bool has_grouped_digits(const std::string& text) {
  for (size_t at = 1; at + 1 < text.size(); ++at) {
    if (text[at] == ',' && is_digit(text[at - 1]) && is_digit(text[at + 1])) return true;
  }
  return false;
}

/// Removes a mark next to a space, and every mark if digits are grouped; otherwise replaces it by a
/// space. Also removes periods that are not followed by a digit.
std::string without_punctuation(const std::string& text) {
  const bool grouped = has_grouped_digits(text);
  std::string out = text;
  for (const char mark : std::string(kPunctuation)) {
    const bool beside = text.find(std::string(1, mark) + " ") != std::string::npos ||
                        text.find(" " + std::string(1, mark)) != std::string::npos;
    for (size_t at = out.find(mark); at != std::string::npos; at = out.find(mark, at))
      out.replace(at, 1, beside || grouped ? "" : " ");
  }
  std::string points;
  for (size_t at = 0; at < out.size(); ++at) {
    if (out[at] != '.' || (at + 1 < out.size() && is_digit(out[at + 1]))) points += out[at];
  }
  return points;
}

}  // namespace

std::string vqa_normal(const std::string& text) {
  static const std::set<std::string> kArticles = {"a", "an", "the"};
  std::string flat = text;
  for (char& c : flat) c = c == '\n' || c == '\t' ? ' ' : c;
  const size_t first = flat.find_first_not_of(" \r\v\f");
  flat = first == std::string::npos
             ? ""
             : flat.substr(first, flat.find_last_not_of(" \r\v\f") - first + 1);
  std::string normal;
  for (std::string word : words_of(lower_text(without_punctuation(flat)))) {
    if (const auto digit = digits().find(word); digit != digits().end()) word = digit->second;
    if (kArticles.contains(word)) continue;
    if (const auto full = contractions().find(word); full != contractions().end())
      word = full->second;
    normal += (normal.empty() ? "" : " ") + word;
  }
  return normal;
}

}  // namespace lft::infer
