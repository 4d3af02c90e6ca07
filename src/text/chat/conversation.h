// A conversation as every data format, the chat and the server say it. Plain data: no template, no
// tokens.
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
  std::vector<size_t> cuts = {};  // places in `text` between two text parts
  // Where `text` shows an image, for a text whose words may contain "<image>" too. Nothing: each
  // "<image>" shows one.
  std::optional<std::vector<size_t>> marks = {};
  bool learnt = true;              // of an assistant's message: false is read and not supervised
  std::string reasoning = {};      // what the assistant thought before it answered
  std::string reasoning_key = {};  // the row's own name of it, "" where it has none
  std::string tool_calls = {};     // JSON in the row's order of keys; "" for none
  std::string tool_call_id = {}, name = {};  // of a tool's message
  bool operator==(const Message&) const = default;
};
/// Where the message shows its images, in order.
std::vector<size_t> marks_of(const Message& message);

/// Messages, and the tools that they may call.
struct Conversation {
  std::vector<Message> messages;
  std::string tools = {};  // a JSON list in the row's order of keys; "" for none
  bool operator==(const Conversation&) const = default;
};

/// A piece of a message's text. Of an image the text is its mark with the newline that belongs to
/// it: the one after the mark, else the one before it.
struct Part {
  bool is_image = false;
  std::string_view text;
};
/// The parts of a message, in order; no text part is empty, and text parts of the row stay apart.
std::vector<Part> parts_of(const Message& message);

/// A question and its answer, for what looks at pairs: metrics, reports, the named forms.
struct Turn {
  std::string question, answer;  // the last answer may be empty (to generate)
  bool learnt = true;
};
/// The question is the text of the messages since the answer before, without a system text.
std::vector<Turn> turns_of(const std::vector<Message>& messages);
/// The first message's text where its role is system, else null.
const std::string* system_of(const std::vector<Message>& messages);
/// The messages of a system text (null: none) and turns. An empty last answer is left out.
std::vector<Message> messages_of(const std::vector<Turn>& turns,
                                 const std::string* system = nullptr);

}  // namespace lft::text
