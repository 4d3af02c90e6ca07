#include "src/serve/request_frame.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "src/base/errors.h"
#include "src/base/text.h"

namespace lft::serve {
namespace {

constexpr std::string_view kLineEnd = "\r\n";

/// A character of a method's or a header's name (RFC 9110, token).
bool is_token_character(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

bool is_token(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, is_token_character);
}

bool is_control(char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f; }

bool is_request_line(std::string_view line) {
  const size_t target = line.find(' '), version = line.rfind(' ');
  if (target == std::string_view::npos || version <= target + 1) return false;
  const std::string_view middle = line.substr(target + 1, version - target - 1);
  return is_token(line.substr(0, target)) && middle.find(' ') == std::string_view::npos &&
         std::ranges::none_of(middle, is_control) &&
         (line.substr(version + 1) == "HTTP/1.1" || line.substr(version + 1) == "HTTP/1.0");
}

}  // namespace

bool RequestFrame::refuse(int status, const std::string& message) {
  refusal_ = {.status = status, .message = message};
  return false;
}

RequestFrame::State RequestFrame::look(std::string_view bytes) {
  if (refusal_.status == 0 && end_ == 0 && (head_ > 0 || find_head_end(bytes)))
    find_body_end(bytes);
  if (refusal_.status != 0) return State::kRefused;
  return end_ == 0 ? State::kMore : State::kWhole;
}

bool RequestFrame::takes_continue() { return std::exchange(continues_, false) && end_ == 0; }

bool RequestFrame::find_head_end(std::string_view bytes) {
  for (;;) {
    const size_t end = bytes.find('\n', line_);
    if (std::min(end, bytes.size()) >= limits_.head_bytes)
      return refuse(431, "the request line and the headers take more than " +
                             std::to_string(limits_.head_bytes) + " bytes");
    if (end == std::string_view::npos) return false;
    if (end == 0 || bytes[end - 1] != '\r')
      return refuse(400, "a line of the request's head does not end with CR LF");
    const bool is_empty = end == line_ + 1;
    line_ = end + 1;
    if (is_empty) break;
  }
  if (!read_head(bytes.substr(0, line_ - 2))) return false;
  head_ = chunk_ = line_;
  return true;
}

bool RequestFrame::read_head(std::string_view head) {
  const size_t first = head.find(kLineEnd);
  if (first == std::string_view::npos || !is_request_line(head.substr(0, first)))
    return refuse(400, "the request line is malformed: " +
                           quote_text(std::string(head.substr(0, first)), 80) +
                           " (expected for instance \"POST /v1/chat/completions HTTP/1.1\")");
  head.remove_prefix(first + kLineEnd.size());
  while (!head.empty()) {
    const size_t end = head.find(kLineEnd);
    if (!read_field(head.substr(0, end))) return false;
    head.remove_prefix(end + kLineEnd.size());
  }
  if (chunked_ && lengths_ > 0)
    return refuse(400, "the request has a Content-Length and a Transfer-Encoding");
  return true;
}

bool RequestFrame::read_field(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_token(line.substr(0, colon)) ||
      std::ranges::any_of(line, is_control))
    return refuse(400, "a header is malformed: " + quote_text(std::string(line), 80));
  const std::string name = lower_ascii(line.substr(0, colon));
  const std::string_view value = trimmed(line.substr(colon + 1));
  if (name == "content-length") return read_length(value);
  if (name == "host" && ++hosts_ > 1) return refuse(400, "the request has two Host headers");
  if (name == "expect") continues_ = lower_ascii(value) == "100-continue";
  if (name != "transfer-encoding") return true;
  if (chunked_ || lower_ascii(value) != "chunked")
    return refuse(400, "the Transfer-Encoding is " + quote_text(std::string(value), 80) +
                           " (expected chunked, once)");
  return chunked_ = true;
}

bool RequestFrame::read_length(std::string_view value) {
  if (++lengths_ > 1) return refuse(400, "the request has two Content-Length headers");
  const auto read = std::from_chars(value.data(), value.data() + value.size(), length_);
  if (value.empty() || value[0] == '-' || read.ptr != value.data() + value.size())
    return refuse(400, "the Content-Length is " + quote_text(std::string(value), 80) +
                           " (expected a whole number of bytes)");
  if (read.ec == std::errc() && length_ <= limits_.body_bytes) return true;
  return refuse(413, "the request is larger than " + std::to_string(limits_.body_bytes) + " bytes");
}

bool RequestFrame::find_body_end(std::string_view bytes) {
  if (chunked_) return find_chunks_end(bytes);
  if (bytes.size() - head_ < length_) return false;
  end_ = head_ + length_;
  return true;
}

bool RequestFrame::find_chunks_end(std::string_view bytes) {
  constexpr size_t kLongestLine = 4096;
  if (bytes.size() - head_ > 2 * limits_.body_bytes)
    return refuse(413, "the chunks of the request take too many bytes");
  for (;;) {
    const size_t line_end = bytes.find(kLineEnd, chunk_);
    if (std::min(line_end, bytes.size()) - chunk_ > kLongestLine)
      return refuse(400, "the size of a chunk is malformed");
    if (line_end == std::string_view::npos) return false;
    const std::string_view line = bytes.substr(chunk_, line_end - chunk_);
    const size_t data = line_end + kLineEnd.size();
    if (in_trailer_) {
      chunk_ = data;
      if (!line.empty()) continue;
      end_ = data;
      return true;
    }
    size_t size = 0;
    const auto read = std::from_chars(line.data(), line.data() + line.size(), size, 16);
    const std::string_view more = trimmed(line.substr(static_cast<size_t>(read.ptr - line.data())));
    if (line.empty() || line[0] == '-' || read.ptr == line.data() ||
        (!more.empty() && more[0] != ';'))
      return refuse(400, "the size of a chunk is malformed: " + quote_text(std::string(line), 80));
    if (read.ec != std::errc() || size > limits_.body_bytes - chunks_.size())
      return refuse(413,
                    "the request is larger than " + std::to_string(limits_.body_bytes) + " bytes");
    in_trailer_ = size == 0;
    if (in_trailer_) {
      chunk_ = data;
      continue;
    }
    if (bytes.size() < data + size + kLineEnd.size()) return false;
    if (bytes.substr(data + size, kLineEnd.size()) != kLineEnd)
      return refuse(400, "a chunk of the request is longer than its size says");
    chunks_.append(bytes.substr(data, size));
    chunk_ = data + size + kLineEnd.size();
  }
}

FramedRequest RequestFrame::take_from(std::string& bytes) const {
  FramedRequest request{.head = bytes.substr(0, head_), .body = chunks_};
  std::string rest = bytes.substr(end_);
  if (!chunked_) {
    bytes.resize(end_);
    request.body = std::move(bytes);
    request.body.erase(0, head_);
  }
  bytes = std::move(rest);
  return request;
}

}  // namespace lft::serve
