#include "src/infer/metrics.h"

#include <locale.h>
#include <wctype.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "src/base/text.h"
#include "src/infer/metrics_vqa.h"

namespace lft::infer {
namespace {

struct NamedMetric {
  Metric metric;
  const char *name, *figure;
};
constexpr NamedMetric kMetrics[] = {
    {Metric::kExact, "exact", "exact_match"}, {Metric::kVqa, "vqa", "vqa"},
    {Metric::kAnls, "anls", "anls"},          {Metric::kRelaxed, "relaxed", "relaxed"},
    {Metric::kChoice, "choice", "choice"},    {Metric::kCaption, "caption", "cider"}};

/// The code points of UTF-8; an invalid byte is a separate one.
std::u32string code_points(const std::string& text) {
  std::u32string points;
  for (size_t at = 0; at < text.size();) {
    const auto first = static_cast<unsigned char>(text[at]);
    const size_t length = first < 0x80       ? 1
                          : first >> 5 == 6  ? 2
                          : first >> 4 == 14 ? 3
                          : first >> 3 == 30 ? 4
                                             : 0;
    char32_t point = length < 2 ? first : first & (0x7f >> length);
    bool good = length > 0 && at + length <= text.size();
    for (size_t k = 1; good && k < length; ++k) {
      const auto next = static_cast<unsigned char>(text[at + k]);
      good = next >> 6 == 2;
      point = point << 6 | (next & 0x3f);
    }
    points += good ? point : 0xdc00 + first;
    at += good ? length : 1;
  }
  return points;
}

std::string utf8_of(const std::u32string& points) {
  std::string text;
  for (const char32_t point : points) {
    if (point < 0x80 || (point >= 0xdc00 && point < 0xdd00)) {
      text += static_cast<char>(point);
    } else if (point < 0x800) {
      text += {static_cast<char>(0xc0 | point >> 6), static_cast<char>(0x80 | (point & 63))};
    } else if (point < 0x10000) {
      text += {static_cast<char>(0xe0 | point >> 12), static_cast<char>(0x80 | (point >> 6 & 63)),
               static_cast<char>(0x80 | (point & 63))};
    } else {
      text += {static_cast<char>(0xf0 | point >> 18), static_cast<char>(0x80 | (point >> 12 & 63)),
               static_cast<char>(0x80 | (point >> 6 & 63)), static_cast<char>(0x80 | (point & 63))};
    }
  }
  return text;
}

/// The Levenshtein distance, with two rows of the table.
size_t edit_distance_of(const std::u32string& a, const std::u32string& b) {
  std::vector<size_t> above(b.size() + 1), row(b.size() + 1);
  std::iota(above.begin(), above.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = above[j] + (a[i] == b[j] ? 0 : 1);
      row[j + 1] = std::min({changed, above[j + 1] + 1, row[j] + 1});
    }
    std::swap(row, above);
  }
  return above[b.size()];
}

double anls_of(const std::string& answer, const std::string& reference) {
  const auto normal = [](const std::string& text) {
    return code_points(join(words_of(lower_text(text)), " "));
  };
  const std::u32string given = normal(answer), right = normal(reference);
  const size_t longer = std::max(given.size(), right.size());
  if (longer == 0) return 1;
  const double near =
      1 - static_cast<double>(edit_distance_of(given, right)) / static_cast<double>(longer);
  return near < 0.5 ? 0 : near;
}

/// Parses a number like Python's float(), "12%" as 0.12; nothing if it is not a number.
std::optional<double> number_of(const std::string& text) {
  std::string digits(trimmed(text));
  const bool percent = digits.ends_with('%');
  while (digits.ends_with('%')) digits.pop_back();
  digits = std::string(trimmed(digits));
  if (digits.starts_with('+')) digits.erase(0, 1);
  if (digits.starts_with('+') || digits.starts_with("-+")) return std::nullopt;
  for (size_t at; (at = digits.find('_')) != std::string::npos;) {  // between digits
    const bool between = at > 0 && at + 1 < digits.size() && std::isdigit(digits[at - 1]) != 0 &&
                         std::isdigit(digits[at + 1]) != 0;
    if (!between) return std::nullopt;
    digits.erase(at, 1);
  }
  double value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, code] = std::from_chars(digits.data(), end, value);
  if (code == std::errc::result_out_of_range) {  // Python has inf or 0
    value = digits.find("e-") == std::string::npos ? HUGE_VAL : 0;
  } else if (code != std::errc{}) {
    return std::nullopt;
  }
  if (stop != end || digits.find('(') != std::string::npos) return std::nullopt;
  return percent ? value / 100 : value;
}

double relaxed_of(const std::string& answer, const std::string& reference) {
  const std::optional<double> given = number_of(answer), right = number_of(reference);
  if (given && right && *right != 0)
    return std::abs(*given - *right) / std::abs(*right) <= 0.05 ? 1 : 0;
  return lower_text(std::string(trimmed(answer))) == lower_text(std::string(trimmed(reference)))
             ? 1
             : 0;
}

double vqa_of(const std::string& answer, std::vector<std::string> references) {
  constexpr size_t kPersons = 10, kAgree = 3;
  if (references.size() == 1) references.resize(kPersons, references.front());
  const std::string given = vqa_normal(answer);
  std::vector<char> same;
  for (const std::string& reference : references) same.push_back(vqa_normal(reference) == given);
  const auto all = std::count(same.begin(), same.end(), 1);
  double sum = 0;
  for (const char own : same)
    sum += std::min(1.0, static_cast<double>(all - own) / static_cast<double>(kAgree));
  return sum / static_cast<double>(same.size());
}

double choice_of(const std::string& answer, const std::string& reference,
                 const std::string& question) {
  const char right = choice_letter(reference, question);
  return right != 0 && choice_letter(answer, question) == right ? 1 : 0;
}

bool is_letter(char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }

/// "B", "(B)", "B.", "B)", "B:", and "B. words": the letter; 0: another text.
char leading_letter(std::string_view text) {
  const bool bracket = text.starts_with('(') || text.starts_with('[');
  const size_t at = bracket ? 1 : 0;
  if (at >= text.size() || !is_letter(text[at])) return 0;
  const std::string_view rest = text.substr(at + 1);
  const bool marked = rest.starts_with(')') || rest.starts_with(']') || rest.starts_with('.') ||
                      rest.starts_with(':');
  const bool ends =
      marked && (rest.size() == 1 || !std::isalnum(static_cast<unsigned char>(rest[1])));
  if (!rest.empty() && !ends) return 0;
  return static_cast<char>(std::toupper(static_cast<unsigned char>(text[at])));
}

/// The letter after "answer is", "answer:", "option" or "choice".
char announced_letter(const std::string& text) {
  const std::string lower = lower_text(text);
  for (const char* const mark : {"answer is", "answer:", "option", "choice"}) {
    const size_t found = lower.rfind(mark);
    if (found == std::string::npos) continue;
    const std::string_view after =
        std::string_view(text).substr(std::min(found + std::string(mark).size(), text.size()));
    std::string_view rest = trimmed(after);
    if (rest.starts_with(':')) rest = trimmed(rest.substr(1));
    const size_t word = rest.find_first_of(" \n,;");
    if (const char letter = leading_letter(rest.substr(0, word)); letter != 0) return letter;
  }
  return 0;
}

/// Without a trailing period.
std::string plain(const std::string& text) {
  std::string words = lower_text(std::string(trimmed(text)));
  while (words.ends_with('.')) words.pop_back();
  return words;
}

}  // namespace

std::string kept_figure(const std::string& keep_best) {
  if (keep_best == "reward_accuracy") return keep_best;
  const std::optional<Metric> metric = find_metric(keep_best);
  return metric ? figure_name(*metric) : "";
}

std::optional<Metric> find_metric(const std::string& name) {
  for (const NamedMetric& each : kMetrics) {
    if (name == each.name) return each.metric;
  }
  return std::nullopt;
}

const std::vector<std::string>& metric_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const NamedMetric& each : kMetrics) names.emplace_back(each.name);
    return names;
  }();
  return kNames;
}

std::string figure_name(Metric metric) {
  return std::ranges::find(kMetrics, metric, &NamedMetric::metric)->figure;
}

std::optional<double> score_answer(Metric metric, const std::string& answer,
                                   const std::vector<std::string>& references,
                                   const std::string& question) {
  if (metric == Metric::kCaption) return std::nullopt;
  if (metric == Metric::kVqa) return vqa_of(answer, references);
  double best = 0;
  for (const std::string& reference : references) {
    best = std::max(best, metric == Metric::kExact
                              ? (trimmed(answer) == trimmed(reference) ? 1.0 : 0.0)
                          : metric == Metric::kAnls    ? anls_of(answer, reference)
                          : metric == Metric::kRelaxed ? relaxed_of(answer, reference)
                                                       : choice_of(answer, reference, question));
  }
  return best;
}

char choice_letter(const std::string& answer, const std::string& question) {
  std::string text = answer;
  std::erase(text, '*');  // Markdown emphasis
  text = std::string(trimmed(text));
  if (const char letter = leading_letter(text); letter != 0) return letter;
  if (const char letter = announced_letter(text); letter != 0) return letter;
  for (size_t at = 0; at < question.size();) {  // its options, one per line
    const size_t end = std::min(question.find('\n', at), question.size());
    const std::string line(trimmed(std::string_view(question).substr(at, end - at)));
    const char letter = leading_letter(line);
    const size_t words = line.find(' ');
    if (letter != 0 && words != std::string::npos && plain(line.substr(words)) == plain(text))
      return letter;
    at = end + 1;
  }
  return 0;
}

std::string lower_text(const std::string& text) {
  static const locale_t kUtf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  std::u32string points = code_points(text);
  for (char32_t& point : points) {
    const bool ascii = point >= U'A' && point <= U'Z';
    if (ascii) point += U'a' - U'A';
    if (point >= 0x80 && kUtf8 != nullptr && !(point >= 0xd800 && point < 0xe000))
      point = static_cast<char32_t>(towlower_l(static_cast<wint_t>(point), kUtf8));
  }
  return utf8_of(points);
}

std::vector<std::string> words_of(const std::string& text) {
  constexpr char kSpace[] = " \t\r\n\v\f";
  std::vector<std::string> words;
  for (size_t at = text.find_first_not_of(kSpace); at != std::string::npos;) {
    const size_t end = std::min(text.find_first_of(kSpace, at), text.size());
    words.push_back(text.substr(at, end - at));
    at = text.find_first_not_of(kSpace, end);
  }
  return words;
}

}  // namespace lft::infer
