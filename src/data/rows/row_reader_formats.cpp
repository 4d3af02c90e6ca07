// The formats of one row: LLaVA and ShareGPT (conversations of from/value or role/content), OpenAI
// (messages of role/content).
#include <algorithm>
#include <array>
#include <optional>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/text.h"
#include "src/data/arrow_module/module.h"
#include "src/data/rows/row_images.h"
#include "src/data/rows/row_keys.h"
#include "src/data/rows/row_reader.h"

namespace lft::data {
namespace {

constexpr const char* kMark = "<image>\n";

/// A message as read, before it is paired into turns.
struct Message {
  std::string role, text;           // role: system, user, assistant
  std::vector<std::string> images;  // from OpenAI parts
  std::optional<bool> learnt = {};  // as the message says
};

/// A value of a Parquet or Arrow file that JSON has no form for.
bool is_unnamed(const io::Json& json) {
  return json.is_object() && json.size() == 2 && json.contains(kArrowType) &&
         json.contains(kArrowPrinted) && json[kArrowType].is_string() &&
         json[kArrowPrinted].is_string();
}

std::string describe(const io::Json& json) {
  if (json.is_string()) return quote_text(json.get_ref<const std::string&>(), 60);
  if (is_unnamed(json))
    return "a value of Arrow type " +
           escape_text(json[kArrowType].get_ref<const std::string&>(), 80);
  if (json.is_object() || json.is_array())
    return std::string(json.empty() ? "an empty " : "an ") + json.type_name();
  return json.dump();
}

std::string key_names(const io::Json& object) {
  std::vector<std::string> names;
  for (const auto& item : object.items()) names.push_back(quote_text(item.key(), 40));
  return names.empty() ? "no keys" : "keys " + join(names, ", ", 8);
}

const io::Json& member(const io::Json& object, const std::string& key, const std::string& where) {
  if (!object.is_object() || is_unnamed(object))
    refuse(ErrorKind::kInput, "not a JSON object", where, describe(object),
           "an object with \"" + key + "\"");
  const auto at = object.find(key);
  if (at == object.end())
    refuse(ErrorKind::kInput, "field \"" + key + "\" is missing", where, key_names(object));
  return *at;
}

/// The keys this row uses, from its structure alone.
RowKeys recognise(const io::Json& row, const std::string& where) {
  if (!row.is_object())
    refuse(ErrorKind::kInput, "a sample is not a JSON object", where, describe(row));
  const bool conversations = row.contains("conversations"), messages = row.contains("messages");
  if (conversations && messages)
    refuse(ErrorKind::kInput, "both \"conversations\" and \"messages\": which holds the dialogue?",
           where, {}, "one of them");
  if (!conversations && !messages) {
    refuse(ErrorKind::kInput, "a sample without a dialogue", where, key_names(row),
           "\"conversations\" (LLaVA, ShareGPT) or \"messages\" (OpenAI)");
  }
  RowKeys keys;
  keys.list = conversations ? "conversations" : "messages";
  const io::Json& list = row[keys.list];
  if (!list.is_array() || list.empty())
    refuse(ErrorKind::kInput, "field \"" + keys.list + "\" holds no messages", where,
           describe(list), "a list of messages");
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

std::string standard_role(const std::string& role) {
  constexpr std::array<std::pair<const char*, const char*>, 9> kRoles = {
      {{"human", "user"},
       {"user", "user"},
       {"gpt", "assistant"},
       {"assistant", "assistant"},
       {"chatgpt", "assistant"},
       {"bot", "assistant"},
       {"model", "assistant"},
       {"system", "system"},
       {"developer", "system"}}};
  for (const auto& [name, standard] : kRoles) {
    if (role == name) return standard;
  }
  return {};
}

/// Whether the answers of `object`, a row or a message, are learnt: "weight" 0 or 1 (OpenAI),
/// "loss" false or true (ms-swift). Nothing where it has neither.
std::optional<bool> read_mask(const io::Json& object, const std::string& where) {
  std::optional<bool> learnt;
  for (const char* key : {"weight", "loss"}) {
    const io::Json value = object.value(key, io::Json());
    if (value.is_null()) continue;
    const bool is_number = value.is_number() && (value == 0 || value == 1);
    if (!value.is_boolean() && !is_number) {
      refuse(ErrorKind::kInput,
             std::string("an answer is learnt or not: \"") + key + "\" is neither of the two",
             where, describe(value), "0 or 1 in \"weight\", false or true in \"loss\"",
             "write 1 for what is to be learnt and 0 for what is only to be read");
    }
    const bool now = value.is_boolean() ? value.get<bool>() : value == 1;
    if (learnt && *learnt != now)
      refuse(ErrorKind::kInput, "\"weight\" and \"loss\" contradict each other", where, {}, {},
             "keep one of them");
    learnt = now;
  }
  return learnt;
}

/// The name in {"path": ...} or {"url": ...}, or a name itself. Pixels within the row ("bytes") are
/// not read.
const io::Json& image_name(const io::Json& image, RowKeyCheck& check, const std::string& where) {
  if (!image.is_object() || is_unnamed(image)) return image;
  check.look(image, {"path", "url", "bytes"}, "image.", where);
  if (!image.value("bytes", io::Json()).is_null()) {
    refuse(ErrorKind::kInput, "an image as bytes inside its row", where, key_names(image),
           "a file name", "write the images to files and name them in \"path\"");
  }
  const bool has_path = !image.value("path", io::Json()).is_null();
  return member(image, has_path ? "path" : "url", where);
}

/// The file name of an image part: "image", "path", "url" or "image_url". "" for a bare
/// placeholder.
std::string part_image(const io::Json& part, RowKeyCheck& check, const std::string& where) {
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

Message read_content(const io::Json& content, const std::string& role, RowKeyCheck& check,
                     const std::string& where) {
  Message message{.role = role, .text = {}, .images = {}};
  if (content.is_string()) {
    message.text = content.get<std::string>();
    return message;
  }
  if (!content.is_array())
    refuse(ErrorKind::kInput, "a message without text", where, describe(content),
           "a string, or a list of parts");
  for (const io::Json& part : content) {
    const io::Json& type = member(part, "type", where);
    check.look(part, {"type", "text", "image_url", "image", "path", "url"}, "part.", where);
    if (type == "text") {
      const io::Json& text = member(part, "text", where);
      if (!text.is_string())
        refuse(ErrorKind::kInput, "a text part without text", where, describe(text), "a string");
      message.text += text.get<std::string>();
    } else if (type == "image" || type == "image_url") {
      if (role != "user")
        refuse(ErrorKind::kInput, "an image in a message that is not the user's", where, role,
               "user");
      message.text += kMark;
      const std::string name = part_image(part, check, where);
      if (!name.empty()) message.images.push_back(name);
    } else {
      refuse(ErrorKind::kInput, "a content part of unknown type", where, describe(type),
             "text, image or image_url");
    }
  }
  return message;
}

std::vector<Message> read_messages(const io::Json& row, RowKeys& keys, RowKeyCheck& check,
                                   const std::string& where) {
  std::vector<Message> messages;
  for (const io::Json& item : row[keys.list]) {
    const std::string place =
        where + ": " + keys.list + "[" + std::to_string(messages.size()) + "]";
    const io::Json& role = member(item, keys.role, place);
    const std::string name = role.is_string() ? role.get<std::string>() : "";
    const std::string standard = standard_role(name);
    if (standard.empty())
      refuse(ErrorKind::kInput, "unknown role", place, describe(role),
             "human or user, gpt or assistant, system");
    keys.other_roles |= name != "human" && name != "gpt";
    const io::Json& content = member(item, keys.text, place);
    if (keys.list == "conversations" && keys.text == "value" && !content.is_string()) {
      refuse(ErrorKind::kInput, "a message without text", place, describe(content), "a string");
    }
    messages.push_back(read_content(content, standard, check, place));
    check.look(item, {keys.role, keys.text, "weight", "loss"}, keys.list + "[].", place);
    check.look_into(messages.back().text, place);
    messages.back().learnt = read_mask(item, place);
    if (standard != "assistant" && messages.back().learnt.value_or(false)) {
      refuse(ErrorKind::kInput, "a message that is to be learnt and is no answer", place, name,
             "weight 1 or loss true on the assistant's messages alone");
    }
  }
  return messages;
}

/// The system text: the row's own, or that of a first message. A message without a text is an empty
/// system text, as chat templates read it; a key without one says nothing.
std::optional<std::string> system_text(const io::Json& row, const std::vector<Message>& messages,
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

/// Pairs messages into turns: after a system message come questions and answers in turn, an answer
/// last. `learnt` holds for answers that say nothing of their own.
std::vector<text::Turn> pair_turns(const std::vector<Message>& messages, const RowKeys& keys,
                                   bool learnt, bool may_be_open, const std::string& where) {
  std::vector<text::Turn> turns;
  const size_t first = messages[0].role == "system" ? 1 : 0;
  for (size_t at = first; at < messages.size(); ++at) {
    const bool question = (at - first) % 2 == 0;
    if (messages[at].role != (question ? "user" : "assistant")) {
      refuse(ErrorKind::kInput, "roles out of order",
             where + ": " + keys.list + "[" + std::to_string(at) + "]", messages[at].role,
             question ? "user" : "assistant");
    }
    if (question) {
      turns.push_back({messages[at].text, {}});
    } else if (is_blank_text(messages[at].text)) {
      refuse(ErrorKind::kInput, kEmptyAnswer,
             where + ": " + keys.list + "[" + std::to_string(at) + "]");
    } else {
      turns.back().answer = messages[at].text;
      turns.back().learnt = messages[at].learnt.value_or(learnt);
    }
  }
  if (turns.empty() || (turns.back().answer.empty() && !may_be_open)) {
    refuse(ErrorKind::kInput, kNoAnswer, where,
           std::to_string(messages.size()) + " messages, the last is the " + messages.back().role +
               "'s");
  }
  return turns;
}

void add_image(std::vector<std::string>& images, const io::Json& image, const std::string& key,
               RowKeyCheck& check, const std::string& where) {
  const io::Json& name = image_name(image, check, where);
  if (!name.is_string() || name.get_ref<const std::string&>().empty())
    refuse(ErrorKind::kInput, "field \"" + key + "\" names no file", where, describe(name),
           "a file name");
  images.push_back(name.get<std::string>());
}

/// "image" (one, or a list) or "images" (a list), each a name or {"path": name}; null and absent
/// are none.
std::vector<std::string> row_images(const io::Json& row, RowKeyCheck& check,
                                    const std::string& where) {
  std::vector<std::string> images;
  const bool one = row.contains("image") && !row["image"].is_null(),
             many = row.contains("images") && !row["images"].is_null();
  if (one && many)
    refuse(ErrorKind::kInput, "both \"image\" and \"images\"", where, {}, "one of them");
  if (!one && !many) return images;
  const std::string key = one ? "image" : "images";
  const io::Json& value = row[key];
  if (value.is_array()) {
    for (const io::Json& image : value) add_image(images, image, key, check, where);
  } else if (one) {
    add_image(images, value, key, check, where);
  } else {
    refuse(ErrorKind::kInput, "field \"images\" is not a list", where, describe(value),
           "a list of file names");
  }
  return images;
}

/// Images within the row are taken out of it; what is at an address elsewhere is refused.
void take_uris(Row& row) {
  for (std::string& name : row.images) {
    if (name.starts_with("data:")) {
      RowImage image = decode_data_uri(name, row.where);
      name = image.name;
      row.inside.push_back(std::move(image));
    } else if (name.find("://") != std::string::npos) {
      refuse(ErrorKind::kInput, "an image is a URL; lft reads files under data.image_root only",
             row.where, quote_text(name, 80), "a file name, or a data: URI");
    }
  }
}

/// "answers": what is right beside the conversation's own, for metrics: texts, or VQA's objects
/// with "answer".
std::vector<std::string> row_answers(const io::Json& row, const std::string& where) {
  std::vector<std::string> answers;
  const io::Json list = row.value("answers", io::Json());
  if (list.is_null()) return answers;
  if (!list.is_array())
    refuse(ErrorKind::kInput, "field \"answers\" is not a list", where, describe(list),
           "a list of texts");
  for (const io::Json& each : list) {
    const io::Json& text = each.is_object() ? member(each, "answer", where) : each;
    if (!text.is_string())
      refuse(ErrorKind::kInput, "an element of \"answers\" is no text", where, describe(text),
             "a text");
    answers.push_back(text.get<std::string>());
  }
  return answers;
}

std::string row_id(const io::Json& row, int64_t index, const std::string& where) {
  const auto at = row.find("id");
  if (at == row.end() || at->is_null()) return std::to_string(index);
  if (at->is_string()) return at->get<std::string>();
  if (is_unnamed(*at)) return (*at)[kArrowPrinted].get<std::string>();
  if (!at->is_number_integer())
    refuse(ErrorKind::kInput, "field \"id\" is no id", where, describe(*at),
           "a string or a whole number");
  return at->dump();
}

}  // namespace

std::string RowKeys::format() const {
  if (list == "messages") return "OpenAI messages";
  return role == "from" && !other_roles ? "LLaVA" : "ShareGPT";
}

Row parse_row(const io::Json& json, const std::string& where, int64_t index, RowKeys& keys,
              const RowRules& rules) {
  keys = recognise(json, where);
  RowKeyCheck check(rules.count_unknown);
  check.look(json, {"id", "image", "images", keys.list, "system", "weight", "loss", "answers"}, "",
             where);
  Row row;
  row.id = row_id(json, index, where);
  row.where = where;
  row.images = row_images(json, check, where);
  const std::vector<Message> messages = read_messages(json, keys, check, where);
  row.turns = pair_turns(messages, keys, read_mask(json, where).value_or(true),
                         rules.open_questions, where);
  row.answers = row_answers(json, where);
  row.system = system_text(json, messages, where);
  if (row.system) check.look_into(*row.system, where);
  keys.unused = check.unused();
  const bool listed = !row.images.empty();
  for (const Message& message : messages) {
    if (listed && !message.images.empty())
      refuse(ErrorKind::kInput, "images both in the row's list and in the parts of a message",
             where, {}, "one of them");
    row.images.insert(row.images.end(), message.images.begin(), message.images.end());
  }
  take_uris(row);
  return row;
}

}  // namespace lft::data
