#include "src/infer/captions_words.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "src/infer/captions.h"
#include "src/infer/metrics.h"

namespace lft::infer {
namespace {

bool is_word_byte(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return std::isalnum(byte) != 0 || byte >= 0x80;
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

/// Converts typographic quotes and dashes to ASCII.
std::string plain_marks(std::string text) {
  for (const char* const quote : {"\u2018", "\u2019"}) replace_all(text, quote, "'");
  for (const char* const quote : {"\u201c", "\u201d"}) replace_all(text, quote, "\"");
  for (const char* const dash : {"\u2013", "\u2014"}) replace_all(text, dash, " -- ");
  replace_all(text, "\u2026", " ... ");
  return text;
}

/// Single letters between periods: u.s, a.m.
bool is_initials(const std::string& word) {
  for (size_t at = 0; at < word.size(); at += 2) {
    if (std::isalpha(static_cast<unsigned char>(word[at])) == 0) return false;
    if (at + 1 < word.size() && word[at + 1] != '.') return false;
  }
  return true;
}

/// Whether the period after this word belongs to it: "mr.", "u.s.", "a.m.".
bool keeps_point(const std::string& word) {
  static const std::set<std::string> kShort = {
      "mr",   "mrs", "ms",  "dr",  "st",   "jr",  "sr",  "vs",  "etc", "no",   "ft",  "inc",  "co",
      "corp", "ltd", "mt",  "gen", "gov",  "sen", "rep", "col", "sgt", "lt",   "rev", "prof", "jan",
      "feb",  "mar", "apr", "aug", "sept", "oct", "nov", "dec", "ave", "blvd", "rd"};
  return kShort.contains(word) || is_initials(word);
}

/// Marks between letters and digits that join a word: t-shirt, red/blue, 3.5, 1,000.
bool joins(const std::string& chunk, size_t at) {
  if (at == 0 || at + 1 >= chunk.size()) return false;
  const char mark = chunk[at], before = chunk[at - 1], after = chunk[at + 1];
  if (!is_word_byte(before) || !is_word_byte(after)) return false;
  const bool digits = std::isdigit(static_cast<unsigned char>(before)) != 0 &&
                      std::isdigit(static_cast<unsigned char>(after)) != 0;
  if (mark == ',' || mark == ':') return digits;
  return mark == '-' || mark == '/' || mark == '.' || mark == '_' || mark == '@' || mark == '\'';
}

/// Splits don't into do n't, it's into it 's, cannot into can not.
void add_word(const std::string& word, std::vector<std::string>& words) {
  const auto split = [&](size_t at) {
    if (at > 0) words.push_back(word.substr(0, at));
    words.push_back(word.substr(at));
  };
  static const std::set<std::string> kPairs = {"cannot", "gonna", "gotta",
                                               "wanna",  "gimme", "lemme"};
  if (word.size() > 3 && word.ends_with("n't")) return split(word.size() - 3);
  for (const std::string ending : {"'s", "'m", "'d", "'re", "'ve", "'ll"}) {
    if (word.size() > ending.size() && word.ends_with(ending))
      return split(word.size() - ending.size());
  }
  if (kPairs.contains(word)) return split(3);
  words.push_back(word);
}

/// Splits the text between two spaces.
void cut_chunk(const std::string& chunk, std::vector<std::string>& words) {
  constexpr char kDropped[] = "'\"`,:;-";  // marks that COCO's evaluation removes
  for (size_t at = 0; at < chunk.size();) {
    const char c = chunk[at];
    if (is_word_byte(c)) {
      size_t end = at + 1;
      while (end < chunk.size() && (is_word_byte(chunk[end]) || joins(chunk, end))) ++end;
      const std::string word = chunk.substr(at, end - at);
      at = end;
      const bool point = at < chunk.size() && chunk[at] == '.' && keeps_point(word);
      add_word(point ? word + "." : word, words);
      at += point ? 1 : 0;
    } else if (c == '.' || c == '?' || c == '!') {
      const size_t end = std::min(chunk.find_first_not_of(".?!", at), chunk.size());
      const std::string marks = chunk.substr(at, end - at);
      const bool loud = marks.size() > 1 && marks.find('.') == std::string::npos;
      if (loud) words.push_back(marks);
      at = end;
    } else {
      static const std::string kOpen = "()[]{}";
      static const char* const kNames[] = {"-lrb-", "-rrb-", "-lsb-", "-rsb-", "-lcb-", "-rcb-"};
      const size_t bracket = kOpen.find(c);
      if (bracket != std::string::npos) {
        words.emplace_back(kNames[bracket]);
      } else if (std::string(kDropped).find(c) == std::string::npos) {
        words.emplace_back(1, c);
      }
      ++at;
    }
  }
}

}  // namespace

std::vector<std::string> caption_words(const std::string& text) {
  std::vector<std::string> words;
  for (const std::string& chunk : words_of(lower_text(plain_marks(text)))) cut_chunk(chunk, words);
  return words;
}

}  // namespace lft::infer
