#include "src/data/rows/row_pairs.h"

#include <array>
#include <utility>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/data/rows/row_keys.h"

namespace lft::data {
namespace {

constexpr const char *kChosen = "chosen", *kRejected = "rejected", *kPromptKey = "prompt",
                     *kResponse = "rejected_response", *kRejectedMessages = "rejected_messages",
                     *kImages = "rejected_images";
constexpr std::array kPairKeys = {kChosen, kRejected, kResponse, kRejectedMessages, kImages};
constexpr char kForms[] =
    "\"chosen\" and \"rejected\" as two texts, two lists of messages or two messages; or "
    "\"rejected_response\" or \"rejected_messages\" next to \"messages\"";

bool says(const io::Json& row, const char* key) {
  return row.contains(key) && !has_nothing(row[key]);
}

[[noreturn]] void refuse_form(const std::string& where, const std::string& found) {
  refuse(ErrorKind::kInput, "a pair in an unknown form", where, found, kForms);
}

io::Json without_pair_keys(const io::Json& row) {
  io::Json rest = row;
  for (const char* key : kPairKeys) rest.erase(key);
  return rest;
}

/// The key of the row's list of messages, or null.
const char* list_of(const io::Json& row) {
  for (const char* key : {"messages", "conversations"})
    if (row.contains(key) && row[key].is_array() && !row[key].empty()) return key;
  return nullptr;
}

bool begins_with(const io::Json& messages, const io::Json& prompt) {
  if (messages.size() <= prompt.size()) return false;
  for (size_t i = 0; i < prompt.size(); ++i)
    if (messages[i] != prompt[i]) return false;
  return true;
}

/// A side as texts: TRL's prompt may be repeated in front of the answer. LLaMA-Factory's question
/// is in columns.
io::Json text_side(const io::Json& rest, const std::string& answer, const std::string& where) {
  for (const char* question : {"question", "instruction"}) {
    if (!says(rest, question) || rest.contains(kPromptKey)) continue;
    io::Json side = rest;
    side["answer"] = answer;
    return side;
  }
  if (!rest.contains(kPromptKey) || !rest[kPromptKey].is_string())
    refuse(ErrorKind::kInput, "a pair of texts without a prompt", where,
           rest.contains(kPromptKey) ? describe(rest[kPromptKey]) : "no \"prompt\"",
           "a text in \"prompt\"");
  const auto& prompt = rest[kPromptKey].get_ref<const std::string&>();
  io::Json side = rest;
  side["completion"] = answer.size() > prompt.size() && answer.starts_with(prompt)
                           ? answer.substr(prompt.size())
                           : answer;
  return side;
}

/// A side as messages, with those of the prompt in front unless it repeats them.
io::Json message_side(const io::Json& rest, const io::Json& answer, const std::string& where) {
  io::Json side = rest;
  side.erase(kPromptKey);
  side["messages"] = answer;
  if (!rest.contains(kPromptKey) || has_nothing(rest[kPromptKey])) return side;
  const io::Json& prompt = rest[kPromptKey];
  if (!prompt.is_array())
    refuse(ErrorKind::kInput, "\"prompt\" and the answers of a pair differ in form", where,
           describe(prompt), "three lists of messages, or three texts");
  if (begins_with(answer, prompt)) return side;
  side["messages"] = prompt;
  side["messages"].insert(side["messages"].end(), answer.begin(), answer.end());
  return side;
}

/// A side whose answer is one message after the row's list.
io::Json appended_side(const io::Json& rest, const io::Json& answer, const std::string& where) {
  const char* const list = list_of(rest);
  if (list == nullptr)
    refuse(ErrorKind::kInput, "a pair of messages without a prompt", where, key_names(rest),
           "the messages before the answers in \"conversations\" or \"messages\"");
  io::Json side = rest;
  side[list].push_back(answer);
  return side;
}

io::Json side_of(const io::Json& rest, const io::Json& answer, const std::string& where) {
  if (answer.is_string()) return text_side(rest, answer.get<std::string>(), where);
  if (answer.is_array()) return message_side(rest, answer, where);
  return appended_side(rest, answer, where);
}

PairRows split_chosen(const io::Json& row, const std::string& where) {
  for (const char* key : {kChosen, kRejected}) {
    if (!says(row, key))
      refuse(ErrorKind::kInput, std::string("a pair without its ") + key + " answer", where,
             row.contains(key) ? describe(row[key]) : key_names(row), kForms);
  }
  const io::Json &chosen = row[kChosen], &rejected = row[kRejected];
  const bool known = chosen.is_string() || chosen.is_array() || chosen.is_object();
  if (!known || chosen.type() != rejected.type())
    refuse_form(where, describe(chosen) + " and " + describe(rejected));
  const io::Json rest = without_pair_keys(row);
  return {side_of(rest, chosen, where), side_of(rest, rejected, where)};
}

/// ms-swift: the row's messages are the chosen side.
PairRows split_messages(const io::Json& row, const std::string& where) {
  const bool response = says(row, kResponse), whole = says(row, kRejectedMessages);
  if (response == whole)
    refuse_form(where, response ? "both \"rejected_response\" and \"rejected_messages\""
                                : "\"rejected_images\" alone");
  const char* const list = list_of(row);
  if (list == nullptr)
    refuse(ErrorKind::kInput, "a pair without its chosen answer", where, key_names(row), kForms);
  const io::Json rest = without_pair_keys(row);
  PairRows sides{rest, rest};
  if (whole) {
    sides.rejected[list] = row[kRejectedMessages];
  } else {
    io::Json& last = sides.rejected[list].back();
    const char* const text = last.contains("value") ? "value" : "content";
    if (!last.is_object() || !row[kResponse].is_string())
      refuse_form(where, describe(row[kResponse]));
    last[text] = row[kResponse];
  }
  return sides;
}

}  // namespace

bool is_pair(const io::Json& row) {
  if (!row.is_object()) return false;
  for (const char* key : kPairKeys)
    if (says(row, key)) return true;
  return false;
}

PairRows split_pair(const io::Json& row, const std::string& where) {
  const bool by_answers = says(row, kChosen) || says(row, kRejected);
  PairRows sides = by_answers ? split_chosen(row, where) : split_messages(row, where);
  if (says(row, kImages)) {
    sides.rejected.erase("image");
    sides.rejected["images"] = row[kImages];
  }
  return sides;
}

}  // namespace lft::data
