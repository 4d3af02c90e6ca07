#include "src/data/rows/row_columns.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/text.h"
#include "src/data/arrow_module/module.h"
#include "src/data/rows/row_images.h"

namespace lft::data {
namespace {

using Names = std::vector<std::string>;

const Names kQuestions = {"question", "query", "instruction", "prompt"};
const Names kAnswers = {"answer", "response", "output", "completion"};
const Names kCaptions = {"caption", "text"};
constexpr char kMarkLine[] = "<image>\n", kInput[] = "input", kHistory[] = "history";
constexpr size_t kMostChoices = 26;

bool has(const io::Json& row, const std::string& key) {
  const auto at = row.find(key);
  return at != row.end() && !has_nothing(*at);
}

/// The column of these that the row has; "" for none.
std::string pick(const io::Json& row, const Names& names, const ColumnRules& rules,
                 const std::string& where) {
  if (rules.names.contains(names[0]) && row.contains(names[0])) return names[0];
  Names present, full;
  for (const std::string& name : names) {
    if (row.contains(name)) present.push_back(name);
    if (has(row, name)) full.push_back(name);
  }
  if (full.size() > 1) {
    refuse(ErrorKind::kInput, "two columns that may be the " + names[0], where,
           quote_text(full[0]) + " and " + quote_text(full[1]), "one of them",
           "name the column to use: data.columns: {" + names[0] + ": " + full[0] + "}");
  }
  return !full.empty() ? full[0] : present.empty() ? "" : present[0];
}

std::string choices_key(const io::Json& row) {
  for (const char* key : {"choices", "options"})
    if (has(row, key)) return key;
  return "";
}

/// A text, or a number as its text.
std::string cell_text(const io::Json& value, const std::string& key, const std::string& where) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number()) return value.dump();
  refuse(ErrorKind::kInput, "column \"" + key + "\" is no text", where, describe(value), "a text");
}

std::string column_text(const io::Json& row, const std::string& key, const std::string& where) {
  return cell_text(row[key], key, where);
}

/// The most frequent text, of several the first.
std::string most_frequent(const Names& texts) {
  std::string best;
  std::ptrdiff_t most = 0;
  for (const std::string& text : texts) {
    const std::ptrdiff_t count = std::ranges::count(texts, text);
    if (count <= most) continue;
    best = text;
    most = count;
  }
  return best;
}

std::string letter_of(size_t choice) { return std::string(1, static_cast<char>('A' + choice)); }

Names choice_texts(const io::Json& row, const std::string& key, const std::string& where) {
  const io::Json& list = row[key];
  if (!list.is_array()) {
    refuse(ErrorKind::kInput, "column \"" + key + "\" is not a list", where, describe(list),
           "a list of texts, in a CSV file as JSON: [\"a cat\", \"a dog\"]",
           "write it as JSON (json.dumps in Python)");
  }
  Names texts;
  for (const io::Json& each : list) texts.push_back(cell_text(each, key, where));
  if (texts.size() < 2 || texts.size() > kMostChoices)
    refuse(ErrorKind::kInput, "a wrong number of choices", where, std::to_string(texts.size()),
           "2 to " + std::to_string(kMostChoices));
  return texts;
}

/// The choices that a text may mean: by its words, its letter, or its index.
std::vector<size_t> choices_meant(const std::string& text, const Names& choices) {
  std::vector<size_t> meant;
  size_t index = choices.size();
  const char* const end = text.data() + text.size();
  if (std::from_chars(text.data(), end, index).ptr != end) index = choices.size();
  for (size_t i = 0; i < choices.size(); ++i) {
    const std::string letter = letter_of(i), small = lower_ascii(letter);
    const bool is = text == std::string(trimmed(choices[i])) || text == letter || text == small ||
                    text == "(" + letter + ")" || text == letter + ")" || text == letter + "." ||
                    text == letter + ". " + choices[i] || index == i;
    if (is) meant.push_back(i);
  }
  return meant;
}

/// The number of the right choice: a number counts from 0.
size_t right_choice(const io::Json& row, const std::string& key, const Names& choices,
                    const std::string& where) {
  const io::Json& value = row[key];
  const std::string last = std::to_string(choices.size() - 1),
                    expected = "0 to " + last + ", A to " + letter_of(choices.size() - 1) +
                               ", or the text of a choice";
  std::vector<size_t> meant;
  if (value.is_number()) {
    const double number = value.get<double>();
    if (number >= 0 && number < static_cast<double>(choices.size()) && number == std::floor(number))
      meant.push_back(static_cast<size_t>(number));
  } else if (value.is_string()) {
    meant = choices_meant(std::string(trimmed(value.get_ref<const std::string&>())), choices);
  }
  if (meant.size() > 1) {
    refuse(ErrorKind::kInput, "column \"" + key + "\" may mean two choices", where,
           describe(value) + ": " + letter_of(meant[0]) + " or " + letter_of(meant[1]), expected,
           "write the letter of the choice");
  }
  if (meant.empty())
    refuse(ErrorKind::kInput, "column \"" + key + "\" names no choice", where, describe(value),
           expected, "numbers count from 0");
  return meant[0];
}

/// "B. a dog", the letter and the text of the right choice.
std::string choice_answer(const io::Json& row, const RowKeys& keys, const Names& choices,
                          const std::string& where) {
  const size_t right = right_choice(row, keys.text, choices, where);
  const bool both = keys.text != "label" && has(row, "label");
  if (both && right_choice(row, "label", choices, where) != right)
    refuse(ErrorKind::kInput, "\"label\" and \"" + keys.text + "\" name two choices", where,
           describe(row["label"]) + " and " + describe(row[keys.text]), "the same choice");
  return letter_of(right) + ". " + choices[right];
}

/// LLaMA-Factory's earlier turns: pairs of a question and an answer.
void read_history(const io::Json& row, bool learnt, const std::string& where, RowMessages& out) {
  if (!has(row, kHistory)) return;
  const auto is_pair = [](const io::Json& turn) {
    return turn.is_array() && turn.size() == 2 && turn[0].is_string() && turn[1].is_string();
  };
  const io::Json& history = row[kHistory];
  if (!history.is_array() || !std::ranges::all_of(history, is_pair))
    refuse(ErrorKind::kInput, "column \"history\" has no turns", where, describe(history),
           "a list of [question, answer]");
  for (const io::Json& turn : history) {
    const auto answer = turn[1].get<std::string>();
    if (is_blank_text(answer)) refuse(ErrorKind::kInput, kEmptyAnswer, where + ": history");
    out.conversation.messages.push_back({.role = "user", .text = turn[0].get<std::string>()});
    out.conversation.messages.push_back({.role = "assistant", .text = answer, .learnt = learnt});
  }
}

std::string question_text(const io::Json& row, const RowKeys& keys, const Names& choices,
                          const std::string& where) {
  if (keys.role.empty()) return "";
  if (!has(row, keys.role))
    refuse(ErrorKind::kInput, "an empty question", where + ": " + keys.role, {}, "a text");
  std::string text = column_text(row, keys.role, where);
  if (keys.role != kInput && has(row, kInput)) text += "\n" + column_text(row, kInput, where);
  for (size_t i = 0; i < choices.size(); ++i) text += "\n" + letter_of(i) + ". " + choices[i];
  return text;
}

std::string answer_text(const io::Json& row, const RowKeys& keys, const Names& choices,
                        const std::string& where, RowMessages& out) {
  if (!choices.empty()) return choice_answer(row, keys, choices, where);
  const io::Json& value = row[keys.text];
  const bool may_be_list = keys.text == "answer" || keys.text == "answers" ||
                           keys.text == "label" || keys.text == "caption";
  if (!value.is_array() || !may_be_list) return cell_text(value, keys.text, where);
  out.answers = answer_texts(value, keys.text, where);
  return most_frequent(out.answers);
}

/// Names of columns in other data sets, for the advice of an error.
const std::map<std::string, Names> kGuesses = {
    {"question", {"question", "problem", "q", "user", "human", "query", "instruction", "prompt"}},
    {"answer",
     {"answer", "a", "solution", "target", "assistant", "gpt", "response", "output", "ground_truth",
      "completion"}},
    {"image",
     {"image", "img", "image_path", "img_path", "image_file", "file_name", "filename", "picture",
      "photo", "image_name", "imgname"}},
    {"caption", {"caption", "description"}}};

std::string guess(const io::Json& row, const std::string& role) {
  for (const std::string& name : kGuesses.at(role)) {
    for (const auto& [key, value] : row.items())
      if (lower_ascii(trimmed(key)) == name) return key;
  }
  return "";
}

/// "data.columns: {question: Q, answer: A, image: img}" with the names of this row.
std::string advised_columns(const io::Json& row) {
  const bool is_caption = guess(row, "question").empty() && !guess(row, "caption").empty();
  Names pairs;
  for (const char* role : {"question", "answer", "caption", "image"}) {
    if (is_caption != (std::string(role) == "caption") && std::string(role) != "image") continue;
    const std::string key = guess(row, role);
    if (std::string(role) == "image" && key.empty()) continue;
    pairs.push_back(role + (": " + (key.empty() ? "NAME" : quote_text(key, 40))));
  }
  return "name the columns in the recipe: data.columns: {" + join(pairs) + "}";
}

/// Whether a text is a file name of an image, a URL of one, or the image itself.
bool is_image_text(const std::string& text) {
  constexpr size_t kLongest = 300;
  if (text.starts_with(kArrowBytes)) return false;
  if (text.size() >= kLongest || text.find('\n') != std::string::npos)
    return is_embedded_image(text);
  const size_t end = text.find("://") == std::string::npos ? text.npos : text.find_first_of("?#");
  return has_image_ending(text.substr(0, end)) || is_embedded_image(text);
}

/// Whether a column named as `image` would have an image in this value.
bool names_image(const io::Json& value) {
  if (value.is_array()) return std::ranges::any_of(value, names_image);
  if (value.is_object())
    return std::ranges::any_of(std::array{"path", "url"}, [&](const char* key) {
      return value.contains(key) && names_image(value[key]);
    });
  return value.is_string() && is_image_text(value.get_ref<const std::string&>());
}

void refuse_unread_image(const Row& row, const io::Json& json, const RowKeys& keys) {
  const Names used = column_keys(keys);
  for (const auto& [key, value] : json.items()) {
    if (std::ranges::find(used, key) != used.end() || !names_image(value)) continue;
    const bool embedded =
        value.is_string() && value.get_ref<const std::string&>().starts_with(kArrowImage);
    refuse(ErrorKind::kInput, "a column names an image, and the row has none", row.where,
           quote_text(key, 40) + ": " + (embedded ? "an embedded image" : describe(value)),
           "\"image\" or \"images\"",
           "name the column in the recipe: data.columns: {image: " + quote_text(key, 40) + "}");
  }
}

/// The columns that have a value, as the summary of a file shows them: "question (column q)".
void add_reads(const io::Json& row, const Names& names, const ColumnRules& rules, RowKeys& keys) {
  for (const std::string& name : names) {
    const auto column = rules.names.find(name);
    const bool is_other = column != rules.names.end() && column->second != name &&
                          keys.mapped.contains(column->second);
    const std::string shown = is_other ? name + " (column " + column->second + ")" : name;
    if (has(row, name) && std::ranges::find(keys.reads, shown) == keys.reads.end())
      keys.reads.push_back(shown);
  }
}

}  // namespace

std::optional<RowKeys> find_columns(const io::Json& row, const ColumnRules& rules,
                                    const std::string& where) {
  RowKeys keys{.list = kColumns, .role = pick(row, kQuestions, rules, where), .text = ""};
  if (keys.role.empty() && has(row, kInput)) keys.role = kInput;
  if (!has(row, keys.role) && has(row, kInput) && keys.role == "instruction") keys.role = kInput;
  if (keys.role.empty()) {
    keys.text = pick(row, kCaptions, rules, where);
    return keys.text.empty() ? std::nullopt : std::optional(keys);
  }
  keys.text = pick(row, kAnswers, rules, where);
  const bool by_label = has(row, "label") && (!choices_key(row).empty() ||
                                              row["label"].is_string() || row["label"].is_array());
  if (!has(row, keys.text) && by_label) keys.text = "label";
  if (!has(row, keys.text) && has(row, "answers")) keys.text = "answers";
  return keys;
}

void refuse_columns(const io::Json& row, const std::string& where) {
  refuse(ErrorKind::kInput, "a sample without a dialogue", where, key_names(row),
         "\"messages\" or \"conversations\"; or a question and an answer (\"question\" and "
         "\"answer\", \"query\" and \"response\", \"prompt\" and \"completion\", \"instruction\" "
         "and \"output\"); or an image and its \"caption\"",
         advised_columns(row));
}

std::vector<std::string> column_keys(const RowKeys& keys) {
  Names used = {"system", "weight", "loss", "tools", kHistory, "choices", "options"};
  for (const std::string& key : {keys.role, keys.text})
    if (!key.empty()) used.push_back(key);
  if (!keys.role.empty()) used.insert(used.end(), {kInput, "label"});
  used.insert(used.end(), {"id", "image", "images", "answers"});
  return used;
}

std::vector<std::string> answer_texts(const io::Json& list, const std::string& key,
                                      const std::string& where) {
  Names texts;
  for (const io::Json& each : list) {
    const io::Json& text = each.is_object() ? member(each, "answer", where) : each;
    texts.push_back(cell_text(text, key, where));
  }
  return texts;
}

void read_columns(const io::Json& row, RowKeys& keys, RowKeyCheck& check, bool learnt,
                  const RowRules& rules, const std::string& where, RowMessages& out) {
  const std::string of_choices = keys.role.empty() ? "" : choices_key(row);
  const Names choices = of_choices.empty() ? Names() : choice_texts(row, of_choices, where);
  read_history(row, learnt, where, out);
  out.conversation.messages.push_back(
      {.role = "user", .text = question_text(row, keys, choices, where)});
  const bool answered = has(row, keys.text);
  if (!answered && keys.text.empty() && !rules.open_questions)
    refuse(ErrorKind::kInput, kNoAnswer, where, key_names(row), "a column \"answer\"",
           advised_columns(row));
  std::string answer;
  if (answered) answer = answer_text(row, keys, choices, where, out);
  if (is_blank_text(answer) && !rules.open_questions)
    refuse(ErrorKind::kInput, kEmptyAnswer, where + ": " + keys.text);
  if (!is_blank_text(answer))
    out.conversation.messages.push_back({.role = "assistant", .text = answer, .learnt = learnt});
  for (const text::Message& message : out.conversation.messages)
    check.look_into(message.text, where);
  add_reads(row, {keys.role, kInput, of_choices, keys.text, "image", "images", "system", kHistory},
            rules.columns, keys);
}

void complete_columns(Row& row, const io::Json& json, const RowKeys& keys) {
  if (row.images.empty() && keys.role.empty())
    refuse(ErrorKind::kInput, "a text without a question and without an image", row.where,
           key_names(json), "a question and an answer, or an image and its caption",
           advised_columns(json));
  std::vector<text::Message>& messages = row.conversation.messages;
  const auto is_question = [](const text::Message& message) { return message.role == "user"; };
  const auto is_marked = [&](const text::Message& message) {
    return is_question(message) && !text::marks_of(message).empty();
  };
  const bool marked = std::ranges::any_of(messages, is_marked);
  if (row.images.empty() && !marked) refuse_unread_image(row, json, keys);
  if (marked) return;
  std::string marks;
  for (size_t i = 0; i < row.images.size(); ++i) marks += kMarkLine;
  const auto first = std::ranges::find_if(messages, is_question);
  if (first != messages.end()) first->text.insert(0, marks);
}

}  // namespace lft::data
