#include "src/data/rows/row_messages.h"

#include <array>
#include <optional>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/text.h"
#include "src/data/rows/row_columns.h"

namespace lft::data {
namespace {

using text::Message;

constexpr const char *kPrompt = "prompt", *kCompletion = "completion";  // TRL
constexpr const char* kMark = "<image>\n";  // an image part, within the message's text
constexpr std::array<const char*, 3> kReasoning = {"reasoning_content", "reasoning", "thinking"};

std::string standard_role(const std::string& role) {
  constexpr std::array<std::pair<const char*, const char*>, 10> kRoles = {
      {{"human", "user"},
       {"user", "user"},
       {"gpt", "assistant"},
       {"assistant", "assistant"},
       {"chatgpt", "assistant"},
       {"bot", "assistant"},
       {"model", "assistant"},
       {"system", "system"},
       {"developer", "system"},
       {"tool", "tool"}}};
  for (const auto& [name, standard] : kRoles) {
    if (role == name) return standard;
  }
  return {};
}

/// Whether the answers of `object`, a row or a message, are trained on: "weight" 0 or 1 (OpenAI),
/// "loss" false or true (ms-swift), in a row of columns also as a text. Empty if it has neither.
std::optional<bool> read_mask(const io::Json& object, bool of_columns, const std::string& where) {
  std::optional<bool> learnt;
  for (const char* key : {"weight", "loss"}) {
    const io::Json value = object.value(key, io::Json());
    if (has_nothing(value)) continue;
    const std::optional<bool> now =
        value.is_string() && !of_columns ? std::nullopt : truth_of(value);
    if (!now) {
      refuse(ErrorKind::kInput,
             std::string("an answer is learnt or not: \"") + key + "\" is neither of the two",
             where, describe(value), "0 or 1 in \"weight\", false or true in \"loss\"",
             "write 1 for what is to be learnt and 0 for what is only to be read");
    }
    if (learnt && learnt != now)
      refuse(ErrorKind::kInput, "\"weight\" and \"loss\" contradict each other", where, {}, {},
             "keep one of them");
    learnt = now;
  }
  return learnt;
}

/// The type of a part: its "type", or the type that its keys imply.
std::string part_type(const io::Json& part, const std::string& where) {
  if (part.is_object() && !part.contains("type")) {
    if (part.contains("text")) return "text";
    for (const char* key : {"image_url", "image"})
      if (part.contains(key)) return key;
  }
  const io::Json& type = member(part, "type", where);
  if (!type.is_string())
    refuse(ErrorKind::kInput, "a content part of unknown type", where, describe(type),
           "text, image or image_url");
  return type.get<std::string>();
}

/// An image in Anthropic's form: {"type": "base64", "media_type", "data"}, or a URL.
std::string source_image(const io::Json& source, const std::string& where) {
  if (source.is_object() && source.contains("url")) return io::json_string(source, "url", where);
  const io::Json& data = member(source, "data", where);
  if (!data.is_string())
    refuse(ErrorKind::kInput, "an image part names no file", where, describe(data),
           "base64 in \"data\"");
  return "data:;base64," + data.get<std::string>();
}

/// The file name of an image part: "image", "path", "url", "image_url" or "source". "" for a bare
/// placeholder.
std::string part_image(const io::Json& part, RowKeyCheck& check, const std::string& where) {
  const io::Json source = part.value("source", io::Json());
  if (source.is_object()) return source_image(source, where);
  for (const char* key : {"image_url", "image", "path", "url"}) {
    if (!part.contains(key) || part[key].is_null()) continue;
    const io::Json& value = image_name(part[key], check, where);
    if (!value.is_string() || value.get_ref<const std::string&>().empty())
      refuse(ErrorKind::kInput, "an image part names no file", where, describe(value),
             "a file name");
    return value.get<std::string>();
  }
  return {};
}

/// Appends the texts and images of a content to the message in order; the images' names are added
/// to `images`.
void read_content(const io::Json& content, Message& message, RowKeyCheck& check,
                  const std::string& where, std::vector<std::string>& images) {
  if (content.is_string()) {
    message.text = content.get<std::string>();
    return;
  }
  if (!content.is_array())
    refuse(ErrorKind::kInput, "a message without text", where, describe(content),
           "a string, or a list of parts");
  std::string& all = message.text;
  bool after_text = false;
  for (const io::Json& part : content) {
    const std::string type = part_type(part, where);
    check.look(part, {"type", "text", "image_url", "image", "path", "url"}, "part.", where);
    if (type == "text") {
      const io::Json& text = member(part, "text", where);
      if (!text.is_string())
        refuse(ErrorKind::kInput, "a text part without text", where, describe(text), "a string");
      if (after_text) message.cuts.push_back(all.size());
      all += text.get<std::string>();
      after_text = true;
    } else if (type == "image" || type == "image_url") {
      if (message.role != "user")
        refuse(ErrorKind::kInput, "an image in a message that is not the user's", where,
               message.role, "user");
      all += kMark;
      after_text = false;
      const std::string name = part_image(part, check, where);
      if (!name.empty()) images.push_back(name);
    } else {
      refuse(ErrorKind::kInput, "a content part of unknown type", where, quote_text(type, 60),
             "text, image or image_url");
    }
  }
}

/// A text field of a message apart from its content; "" if there is none.
std::string side_text(const io::Json& item, const char* key, const std::string& where) {
  const io::Json value = item.value(key, io::Json());
  if (value.is_null()) return "";
  if (!value.is_string())
    refuse(ErrorKind::kInput, "field \"" + std::string(key) + "\" is no text", where,
           describe(value), "a text");
  return value.get<std::string>();
}

/// A JSON list as text with the row's order of keys; "" if there is none. Some data sets write
/// the list as a JSON string.
std::string side_list(const io::Json& item, const char* key, const nlohmann::ordered_json* ordered,
                      const std::string& where) {
  io::Json value = item.value(key, io::Json());
  if (value.is_null()) return "";
  if (value.is_string()) {
    const auto text = value.get<std::string>();
    if (is_blank_text(text)) return "";
    value = io::parse_json(text, where + ": " + key);
    if (value.is_array()) return value.empty() ? "" : nlohmann::ordered_json::parse(text).dump();
  }
  if (!value.is_array())
    refuse(ErrorKind::kInput, "field \"" + std::string(key) + "\" is not a list", where,
           describe(value), "a list, as OpenAI has it");
  if (value.empty()) return "";
  return ordered != nullptr ? ordered->at(key).dump() : value.dump();
}

void read_reasoning(const io::Json& item, Message& message, const std::string& where) {
  for (const char* key : kReasoning) {
    const std::string text = side_text(item, key, where);
    if (text.empty()) continue;
    if (!message.reasoning.empty() && message.reasoning != text)
      refuse(ErrorKind::kInput, "two texts of reasoning in one message", where,
             quote_text(key, 40) + " and " + quote_text(message.reasoning_key, 40), "one of them");
    message.reasoning = text;
    message.reasoning_key = key;
  }
}

/// One message of a list.
Message read_message(const io::Json& item, RowKeys& keys, RowKeyCheck& check,
                     const std::string& place, const nlohmann::ordered_json* ordered,
                     std::vector<std::string>& images) {
  const io::Json& role = member(item, keys.role, place);
  const std::string name = role.is_string() ? role.get<std::string>() : "";
  const std::string standard = standard_role(name);
  if (standard.empty())
    refuse(ErrorKind::kInput, "unknown role", place, describe(role),
           "human or user, gpt or assistant, system, tool");
  keys.other_roles |= name != "human" && name != "gpt";
  Message message{.role = standard, .text = ""};
  std::vector<std::string> used = {keys.role, keys.text, "weight", "loss"};
  if (standard == "assistant") {
    used.insert(used.end(), kReasoning.begin(), kReasoning.end());
    used.emplace_back("tool_calls");
    read_reasoning(item, message, place);
    message.tool_calls = side_list(item, "tool_calls", ordered, place);
  } else if (standard == "tool") {
    used.insert(used.end(), {"tool_call_id", "name"});
    message.tool_call_id = side_text(item, "tool_call_id", place);
    message.name = side_text(item, "name", place);
  }
  const bool only_calls =
      !message.tool_calls.empty() && item.value(keys.text, io::Json()).is_null();
  if (!only_calls) {
    const io::Json& content = member(item, keys.text, place);
    if (keys.list == "conversations" && keys.text == "value" && !content.is_string())
      refuse(ErrorKind::kInput, "a message without text", place, describe(content), "a string");
    read_content(content, message, check, place, images);
  }
  check.look(item, used, keys.list + "[].", place);
  check.look_into(message.text, place);
  return message;
}

/// `learnt` is used for answers without their own mask.
void read_list(const io::Json& row, const std::string& list, RowKeys& keys, RowKeyCheck& check,
               bool learnt, const std::string& where, const nlohmann::ordered_json* ordered,
               RowMessages& out) {
  size_t at = 0;
  for (const io::Json& item : row[list]) {
    const std::string place = where + ": " + list + "[" + std::to_string(at) + "]";
    const bool calls_tools = ordered != nullptr && item.is_object() && item.contains("tool_calls");
    Message message = read_message(item, keys, check, place,
                                   calls_tools ? &ordered->at(list).at(at) : nullptr, out.images);
    const std::optional<bool> mask = read_mask(item, /*of_columns=*/false, place);
    message.learnt = mask.value_or(learnt);
    if (message.role != "assistant" && mask.value_or(false)) {
      refuse(ErrorKind::kInput, "a message that is to be learnt and is no answer", place,
             message.role, "weight 1 or loss true on the assistant's messages alone");
    }
    out.conversation.messages.push_back(std::move(message));
    ++at;
  }
}

/// TRL's prompt and completion as messages. Answers in the prompt are not trained on.
void read_completion(const io::Json& row, RowKeys& keys, RowKeyCheck& check, bool learnt,
                     const std::string& where, const nlohmann::ordered_json* ordered,
                     RowMessages& out) {
  for (const char* key : {kPrompt, kCompletion}) {
    const bool is_prompt = std::string_view(key) == kPrompt;
    const io::Json& value = row[key];
    if (!value.is_array())
      refuse(ErrorKind::kInput, "\"prompt\" and \"completion\" differ in form", where,
             describe(value), "two lists of messages, or two texts");
    read_list(row, key, keys, check, learnt && !is_prompt, where, ordered, out);
  }
}

/// The system text: the row's own, or that of a first message. A message without a text is an empty
/// system text, as chat templates read it; a key without one is ignored.
std::optional<std::string> system_text(const io::Json& row,
                                       const std::vector<text::Message>& messages,
                                       const std::string& where) {
  const io::Json own = row.value("system", io::Json(""));
  if (!own.is_string() && !own.is_null())
    refuse(ErrorKind::kInput, "field \"system\" is no text", where, describe(own), "a text");
  std::optional<std::string> text;
  if (own.is_string() && !is_blank_text(own.get_ref<const std::string&>()))
    text = own.get<std::string>();
  if (messages[0].role != "system" || (text && is_blank_text(messages[0].text))) return text;
  if (text && *text != messages[0].text)
    refuse(ErrorKind::kInput, "two system texts: \"system\" and a first message", where,
           quote_text(*text, 80), {}, "keep one of them");
  return messages[0].text;
}

/// Puts the row's own system text in front if no message contains one.
void add_system(const io::Json& row, const std::string& where, std::vector<Message>& messages) {
  const std::optional<std::string> system = system_text(row, messages, where);
  if (!system || (messages[0].role == "system" && messages[0].text == *system)) return;
  if (messages[0].role == "system") messages.erase(messages.begin());  // it was empty
  messages.insert(messages.begin(), {.role = "system", .text = *system});
}

/// Checks which roles may follow a message.
bool may_follow(const Message* before, const std::string& role) {
  if (before == nullptr || before->role == "system") return role == "user";
  if (before->role == "user") return role == "assistant";
  if (before->role == "tool") return role == "tool" || role == "assistant";
  return role == (before->tool_calls.empty() ? "user" : "tool");
}

void check_order(const std::vector<Message>& messages, bool may_be_open, const std::string& place,
                 const std::string& where) {
  const Message* before = nullptr;
  for (size_t at = 0; at < messages.size(); ++at) {
    const Message& message = messages[at];
    const std::string here = place + "[" + std::to_string(at) + "]";
    const bool is_first_system = at == 0 && message.role == "system";
    if (!is_first_system && !may_follow(before, message.role)) {
      refuse(ErrorKind::kInput, "roles out of order", here, message.role,
             before == nullptr || before->role == "system" ? "user"
             : before->role == "user"                      ? "assistant"
             : before->role == "tool"                      ? "tool or assistant"
             : before->tool_calls.empty()                  ? "user"
                                                           : "tool, which answers the calls");
    }
    if (message.role == "assistant" && is_blank_text(message.text) && message.tool_calls.empty())
      refuse(ErrorKind::kInput, kEmptyAnswer, here);
    before = &message;
  }
  if (messages.back().role == "assistant" || (may_be_open && messages.back().role != "system"))
    return;
  refuse(ErrorKind::kInput, kNoAnswer, where,
         std::to_string(messages.size()) + " messages, the last is the " + messages.back().role +
             "'s");
}

}  // namespace

/// The keys that this row uses, determined from its structure alone.
RowKeys recognise(const io::Json& row, const ColumnRules& rules, const std::string& where) {
  if (!row.is_object())
    refuse(ErrorKind::kInput, "a sample is not a JSON object", where, describe(row));
  const bool conversations = row.contains("conversations"), messages = row.contains("messages");
  if (conversations && messages)
    refuse(ErrorKind::kInput,
           "both \"conversations\" and \"messages\": which contains the dialogue?", where, {},
           "one of them");
  RowKeys keys;
  const bool has_both = row.contains(kPrompt) && row.contains(kCompletion);
  if (!conversations && !messages && has_both &&
      (row[kPrompt].is_array() || row[kCompletion].is_array()))
    return {.list = kPrompt, .role = "role", .text = "content"};
  if (!conversations && !messages) {
    const std::optional<RowKeys> columns = find_columns(row, rules, where);
    if (!columns) refuse_columns(row, where);
    return *columns;
  }
  keys.list = conversations ? "conversations" : "messages";
  const io::Json& list = row[keys.list];
  if (!list.is_array() || list.empty())
    refuse(ErrorKind::kInput, "field \"" + keys.list + "\" has no messages", where, describe(list),
           "a list of messages");
  const io::Json& first = list[0];
  const bool from = first.is_object() && first.contains("from"),
             role = first.is_object() && first.contains("role");
  if (conversations && from && !role) {
    keys.role = "from";
    keys.text = "value";
  } else if (role && !from) {
    keys.role = "role";
    keys.text = "content";
  } else {
    refuse(ErrorKind::kInput, "message 0 of \"" + keys.list + "\" names no speaker", where,
           first.is_object() ? key_names(first) : describe(first),
           conversations ? "\"from\" and \"value\", or \"role\" and \"content\""
                         : "\"role\" and \"content\"");
  }
  return keys;
}

std::vector<std::string> dialogue_keys(const RowKeys& keys) {
  if (keys.list == kColumns) return column_keys(keys);
  std::vector<std::string> used = {keys.list, "system", "weight", "loss", "tools"};
  if (keys.list == kPrompt) used.emplace_back(kCompletion);
  return used;
}

RowMessages read_messages(const io::Json& row, RowKeys& keys, RowKeyCheck& check,
                          const RowRules& rules, const std::string& where,
                          const nlohmann::ordered_json* ordered) {
  RowMessages out;
  const bool learnt = read_mask(row, keys.list == kColumns, where).value_or(true);
  if (keys.list == kColumns)
    read_columns(row, keys, check, learnt, rules, where, out);
  else if (keys.list == kPrompt)
    read_completion(row, keys, check, learnt, where, ordered, out);
  else
    read_list(row, keys.list, keys, check, learnt, where, ordered, out);
  std::vector<Message>& messages = out.conversation.messages;
  if (messages.empty()) refuse(ErrorKind::kInput, kNoAnswer, where, "0 messages");
  check_order(messages, rules.open_questions, where + ": " + keys.list, where);
  add_system(row, where, messages);
  if (const std::string* system = text::system_of(messages)) check.look_into(*system, where);
  out.conversation.tools = side_list(row, "tools", ordered, where);
  return out;
}

}  // namespace lft::data
