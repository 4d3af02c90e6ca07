// A conversation, the common form of every data format, the chat and the server. Plain data: no
// template, no tokens.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lft::text {

inline constexpr std::string_view kImageMark = "<image>";
size_t count_image_marks(std::string_view text);

/// One message. `text` contains "<image>" where an image is shown; an image part of a message of
/// parts is written "<image>\n".
struct Message {
  std::string role;  // system, user, assistant or tool
  std::string text;
  std::vector<size_t> cuts = {};  // offsets in `text` between two text parts
  // Offsets of the images in `text`, if its words may also contain "<image>". Empty optional: each
  // "<image>" is an image.
  std::optional<std::vector<size_t>> marks = {};
  bool learnt = true;                        // for assistants; false: not supervised
  std::string reasoning = {};                // the assistant's reasoning before its answer
  std::string reasoning_key = {};            // the row's key for it, "" if there is none
  std::string tool_calls = {};               // JSON in the row's order of keys; "" for none
  std::string tool_call_id = {}, name = {};  // for a tool's message
  bool operator==(const Message&) const = default;
};
/// The positions of the message's images, in order.
std::vector<size_t> marks_of(const Message& message);

/// Messages, and the tools available to them.
struct Conversation {
  std::vector<Message> messages;
  std::string tools = {};  // a JSON list in the row's order of keys; "" for none
  bool operator==(const Conversation&) const = default;
};

/// A piece of a message's text. For an image, the text is its mark and one newline: the one after
/// the mark, else the one before it.
struct Part {
  bool is_image = false;
  std::string_view text;
};
/// The parts of a message, in order. No text part is empty; text parts of the row remain separate.
std::vector<Part> parts_of(const Message& message);

/// A question and its answer, for code that needs pairs: metrics, reports, the named forms.
struct Turn {
  std::string question, answer;  // the last answer may be empty (to generate)
  bool learnt = true;
};
/// The question is the text of all messages since the previous answer, without the system text.
std::vector<Turn> turns_of(const std::vector<Message>& messages);
/// The text of the first message if its role is system, else null.
const std::string* system_of(const std::vector<Message>& messages);
/// The messages for a system text (null: none) and turns. An empty last answer is omitted.
std::vector<Message> messages_of(const std::vector<Turn>& turns,
                                 const std::string* system = nullptr);

}  // namespace lft::text
