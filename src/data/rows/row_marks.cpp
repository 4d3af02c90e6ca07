#include "src/data/rows/row_marks.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "src/base/errors.h"
#include "src/data/rows/row_images.h"

namespace lft::data {
namespace {

/// The letters of a placeholder between its brackets, without digits and punctuation.
const std::set<std::string>& placeholder_names() {
  static const std::set<std::string> kNames = {"image",
                                               "images",
                                               "img",
                                               "imagehere",
                                               "imageplaceholder",
                                               "imgplaceholder",
                                               "imagetoken",
                                               "imgtoken",
                                               "imagesofttoken",
                                               "imagepad",
                                               "imgpad",
                                               "imagepatch",
                                               "impatch",
                                               "imagecontext",
                                               "imgcontext",
                                               "imagefeature",
                                               "inputimage",
                                               "startofimage",
                                               "endofimage",
                                               "imagestart",
                                               "imageend",
                                               "imgstart",
                                               "imgend",
                                               "imgbreak",
                                               "imagebreak",
                                               "beginofimage",
                                               "boi",
                                               "eoi",
                                               "visionstart",
                                               "visionend",
                                               "visionpad",
                                               "faketokenaroundimage",
                                               "globalimg"};
  return kNames;
}

/// Image tokens of Qwen-VL, SmolVLM and Gemma.
constexpr std::array<std::string_view, 9> kTokenMarks = {
    "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",     "<|image_pad|>",
    "<start_of_image>", "<end_of_image>", "<image_soft_token>", "<fake_token_around_image>",
    "<global-img>"};

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
bool is_letter(char c) { return lower(c) >= 'a' && lower(c) <= 'z'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// The text with Markdown code (in one or more backticks) blanked out.
std::string without_code(std::string text) {
  for (size_t begin = text.find('`'); begin != std::string::npos; begin = text.find('`', begin)) {
    const size_t after = std::min(text.find_first_not_of('`', begin), text.size());
    const std::string fence = text.substr(begin, after - begin);
    const size_t close = text.find(fence, after),
                 end = close == std::string::npos ? after : close + fence.size();
    if (close != std::string::npos) std::fill(text.begin() + begin, text.begin() + end, ' ');
    begin = end;
  }
  return text;
}

/// Whether `inner` is the text of a placeholder between brackets. HTML's <img> alone, which has no
/// end tag, and lft's own <image> are not.
bool is_placeholder(std::string_view inner, char open) {
  constexpr std::string_view kMarks = "|_-/!#: .";
  std::string letters;
  for (const char each : inner) {
    if (is_letter(each))
      letters += lower(each);
    else if (!is_digit(each) && kMarks.find(each) == std::string_view::npos)
      return false;
  }
  const bool is_tag = open == '<' && letters == "img" && inner.size() == letters.size();
  const bool is_own = open == '<' && inner == "image";
  return !is_tag && !is_own && placeholder_names().contains(letters);
}

/// A placeholder in one kind of brackets. A Markdown link is not one.
std::optional<std::string> bracketed(const std::string& text, char open, char close,
                                     bool with_tokens) {
  constexpr size_t kLongest = 40;
  for (size_t at = text.find(open); at != std::string::npos; at = text.find(open, at + 1)) {
    const size_t end = text.find_first_of(std::string{open, close, '\n'}, at + 1);
    if (end == std::string::npos) return std::nullopt;
    if (text[end] != close || end - at > kLongest) continue;
    const bool is_link = open == '[' && ((at > 0 && text[at - 1] == '!') ||
                                         (end + 1 < text.size() && text[end + 1] == '('));
    const std::string_view mark = std::string_view(text).substr(at, end - at + 1);
    const bool is_token = std::ranges::find(kTokenMarks, mark) != kTokenMarks.end();
    if (!is_link && (with_tokens || !is_token) &&
        is_placeholder(mark.substr(1, mark.size() - 2), open))
      return std::string(mark);
  }
  return std::nullopt;
}

/// Image files and embedded bytes only: a web address may be part of a text about pictures.
bool names_image(std::string target) {
  std::ranges::transform(target, target.begin(), lower);
  if (target.starts_with("data:image")) return true;
  if (target.find("://") != std::string::npos || target.starts_with("//")) return false;
  return has_image_ending(target);
}

/// ![alt](file "title")
std::optional<std::string> markdown_image(const std::string& text) {
  for (size_t at = text.find("!["); at != std::string::npos; at = text.find("![", at + 2)) {
    const size_t target = text.find("](", at), end = text.find(')', std::min(target, text.size()));
    if (end == std::string::npos) return std::nullopt;
    if (text.find('\n', at) < end) continue;
    std::string name = text.substr(target + 2, end - target - 2);
    name = name.starts_with('<') ? name.substr(1, name.find('>') - 1)
                                 : name.substr(0, name.find_first_of(" \t"));
    if (names_image(name)) return text.substr(at, end - at + 1);
  }
  return std::nullopt;
}

std::optional<std::string> placeholder(const std::string& given, bool with_tokens) {
  const std::string text = without_code(given);
  if (text.find("<__media__>") != std::string::npos) return "<__media__>";
  if (auto found = bracketed(text, '<', '>', with_tokens)) return found;
  if (auto found = bracketed(text, '[', ']', with_tokens)) return found;
  return markdown_image(text);
}

/// Parts of OpenAI's messages only: an answer that is JSON has other keys.
bool is_part(const io::Json& part) {
  constexpr std::array<const char*, 6> kKeys = {"type",      "text", "image",
                                                "image_url", "path", "url"};
  if (!part.is_object() || !part.contains("type") || part.size() < 2) return false;
  for (const auto& [key, value] : part.items()) {
    if (std::ranges::find(kKeys, key) == kKeys.end()) return false;
  }
  const io::Json& type = part["type"];
  return type == "text" ? part.contains("text") && part["text"].is_string()
                        : type == "image" || type == "image_url";
}

enum class Written { kPlain, kQuoted, kParts };
Written written_as(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos || (text[begin] != '[' && text[begin] != '"'))
    return Written::kPlain;
  try {
    const io::Json value = io::parse_json(text, "");
    if (value.is_string()) return Written::kQuoted;
    const bool parts = value.is_array() && !value.empty() && std::ranges::all_of(value, is_part);
    return parts ? Written::kParts : Written::kPlain;
  } catch (const Error&) {  // brackets and quotes that are not JSON
    return Written::kPlain;
  }
}

}  // namespace

std::vector<std::string> token_marks(const Row& row) {
  std::vector<std::string> found;
  if (!row.images.empty()) return found;
  std::string text;
  for (const text::Message& message : row.messages()) {
    if (message.role != "assistant") text += "\n" + without_code(message.text);
  }
  for (const std::string_view mark : kTokenMarks) {
    if (text.find(mark) != std::string::npos) found.emplace_back(mark);
  }
  return found;
}

void look_for_marks(const Row& row, RowKeyCheck& check, bool with_tokens) {
  bool all_quoted = true, any_answer = false;
  const auto look = [&](const std::string& text, const std::string& place, bool is_question) {
    if (text.empty()) return;
    const Written written = written_as(text);
    if (written == Written::kParts) check.json_text(text, place);
    all_quoted = all_quoted && written != Written::kPlain;
    if (!is_question || !row.images.empty()) return;
    if (const auto found = placeholder(text, with_tokens)) check.image_mark(*found, place);
  };
  if (const std::string* system = text::system_of(row.messages()))
    look(*system, row.where + ": system text", true);
  const std::vector<text::Turn> turns = row.turns();
  for (size_t i = 0; i < turns.size(); ++i) {
    const std::string number = std::to_string(i + 1);
    look(turns[i].question, row.where + ": question " + number, true);
    look(turns[i].answer, row.where + ": answer " + number, false);
    any_answer = any_answer || !turns[i].answer.empty();
  }
  if (all_quoted && any_answer) check.json_text(turns[0].question, row.where + ": question 1");
}

}  // namespace lft::data
