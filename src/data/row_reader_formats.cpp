// The formats of one row: LLaVA and ShareGPT (conversations of from/value or role/content), OpenAI
// (messages of role/content).
#include <algorithm>
#include <array>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/text.h"
#include "src/data/row_reader.h"

namespace lft::data {
namespace {

constexpr const char* kMark = "<image>\n";

/// A message as read, before it is paired into turns.
struct Message {
  std::string role, text;           // role: system, user, assistant
  std::vector<std::string> images;  // from OpenAI parts
};

std::string describe(const io::Json& json) {
  if (json.is_string()) return quote_text(json.get_ref<const std::string&>(), 60);
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
  if (!object.is_object())
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

/// The file name of an image part: "image", "path", "url" or "image_url" (a string, or an object
/// with "url"). "" for a bare placeholder.
std::string part_image(const io::Json& part, const std::string& where) {
  for (const char* key : {"image_url", "image", "path", "url"}) {
    if (!part.contains(key)) continue;
    const io::Json& value =
        part[key].is_object()
            ? member(part[key], part[key].contains("path") ? "path" : "url", where)
            : part[key];
    if (!value.is_string() || value.get_ref<const std::string&>().empty())
      refuse(ErrorKind::kInput, "an image part names no file", where, describe(value),
             "a file name");
    return value.get<std::string>();
  }
  return {};
}

Message read_content(const io::Json& content, const std::string& role, const std::string& where) {
  Message message{role, {}, {}};
  if (content.is_string()) {
    message.text = content.get<std::string>();
    return message;
  }
  if (!content.is_array())
    refuse(ErrorKind::kInput, "a message without text", where, describe(content),
           "a string, or a list of parts");
  for (const io::Json& part : content) {
    const io::Json& type = member(part, "type", where);
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
      const std::string name = part_image(part, where);
      if (!name.empty()) message.images.push_back(name);
    } else {
      refuse(ErrorKind::kInput, "a content part of unknown type", where, describe(type),
             "text, image or image_url");
    }
  }
  return message;
}

std::vector<Message> read_messages(const io::Json& row, RowKeys& keys, const std::string& where) {
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
    messages.push_back(read_content(content, standard, place));
  }
  return messages;
}

/// Pairs messages into turns: an empty system message may come first, then questions and answers in
/// turn, an answer last.
std::vector<text::Turn> pair_turns(const std::vector<Message>& messages, const RowKeys& keys,
                                   const std::string& where) {
  std::vector<text::Turn> turns;
  size_t at = 0;
  if (messages[0].role == "system") {
    if (messages[0].text.find_first_not_of(" \t\r\n") != std::string::npos) {
      refuse(ErrorKind::kInput,
             "a system message: the named templates have none, or one of their own", where,
             quote_text(messages[0].text, 80), {},
             "remove it, or put its text in front of the first question");
    }
    ++at;
  }
  const size_t first = at;
  for (; at < messages.size(); ++at) {
    const bool question = (at - first) % 2 == 0;
    if (messages[at].role != (question ? "user" : "assistant")) {
      refuse(ErrorKind::kInput, "roles out of order",
             where + ": " + keys.list + "[" + std::to_string(at) + "]", messages[at].role,
             question ? "user" : "assistant");
    }
    if (question) {
      turns.push_back({messages[at].text, {}});
    } else if (messages[at].text.find_first_not_of(" \t\r\n") == std::string::npos) {
      refuse(ErrorKind::kInput, kEmptyAnswer,
             where + ": " + keys.list + "[" + std::to_string(at) + "]");
    } else {
      turns.back().answer = messages[at].text;
    }
  }
  if (turns.empty() || turns.back().answer.empty()) {
    refuse(ErrorKind::kInput, kNoAnswer, where,
           std::to_string(messages.size()) + " messages, the last is the " + messages.back().role +
               "'s");
  }
  return turns;
}

void add_image(std::vector<std::string>& images, const io::Json& name, const std::string& key,
               const std::string& where) {
  if (!name.is_string() || name.get_ref<const std::string&>().empty())
    refuse(ErrorKind::kInput, "field \"" + key + "\" names no file", where, describe(name),
           "a file name");
  images.push_back(name.get<std::string>());
}

/// "image" (a name or a list of names) or "images" (a list of names); null and absent are none.
std::vector<std::string> row_images(const io::Json& row, const std::string& where) {
  std::vector<std::string> images;
  const bool one = row.contains("image") && !row["image"].is_null(),
             many = row.contains("images") && !row["images"].is_null();
  if (one && many)
    refuse(ErrorKind::kInput, "both \"image\" and \"images\"", where, {}, "one of them");
  if (!one && !many) return images;
  const std::string key = one ? "image" : "images";
  const io::Json& value = row[key];
  if (value.is_array()) {
    for (const io::Json& name : value) add_image(images, name, key, where);
  } else if (one) {
    add_image(images, value, key, where);
  } else {
    refuse(ErrorKind::kInput, "field \"images\" is not a list", where, describe(value),
           "a list of file names");
  }
  return images;
}

void refuse_urls(const std::vector<std::string>& images, const std::string& where) {
  for (const std::string& name : images) {
    if (name.find("://") == std::string::npos && name.rfind("data:", 0) != 0) continue;
    refuse(ErrorKind::kInput, "an image is a URL; lft reads files under data.image_root only",
           where, quote_text(name, 80), "a file name");
  }
}

std::string row_id(const io::Json& row, int64_t index, const std::string& where) {
  const auto at = row.find("id");
  if (at == row.end() || at->is_null()) return std::to_string(index);
  if (at->is_string()) return at->get<std::string>();
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

Row parse_row(const io::Json& json, const std::string& where, int64_t index, RowKeys& keys) {
  keys = recognise(json, where);
  Row row;
  row.id = row_id(json, index, where);
  row.where = where;
  row.images = row_images(json, where);
  const std::vector<Message> messages = read_messages(json, keys, where);
  row.turns = pair_turns(messages, keys, where);
  const bool listed = !row.images.empty();
  for (const Message& message : messages) {
    if (listed && !message.images.empty())
      refuse(ErrorKind::kInput, "images both in the row's list and in the parts of a message",
             where, {}, "one of them");
    row.images.insert(row.images.end(), message.images.begin(), message.images.end());
  }
  refuse_urls(row.images, where);
  return row;
}

}  // namespace lft::data
