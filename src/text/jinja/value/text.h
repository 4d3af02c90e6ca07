// UTF-8 text that records which characters are copied from a caller's strings. Texts are immutable
// and shared; TextBuilder builds them.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/text/jinja/value/work.h"

namespace lft::text::jinja {

/// Bytes [begin, end) of a text that come from a caller's string: its number and the offset in it.
/// Bytes outside all runs were written by the template.
struct Run {
  uint32_t begin, end;
  int32_t source;
  uint32_t offset;
  /// The bytes are an exact copy. Otherwise they represent one character of the source, for example
  /// an escape, or a printed number, list or dict of the caller, at offset 0.
  bool exact = true;
  bool operator==(const Run&) const = default;
};
/// Bytes made from a caller's string by a function that does not keep origins.
struct LostRun {
  uint32_t begin, end;
  int32_t source;
  uint32_t by;  // Work::loser
};

struct TextBody : Object {
  std::string bytes;
  std::vector<Run> runs;  // in order
  std::vector<LostRun> lost;
  mutable std::atomic<int64_t> points{-1};  // number of code points, computed on demand
};

class Text {
 public:
  Text();
  explicit Text(std::string bytes);
  explicit Text(std::shared_ptr<const TextBody> body) : body_(std::move(body)) {}
  /// The whole string of the caller with this number.
  Text(std::string bytes, int32_t source);

  std::string_view bytes() const { return body_->bytes; }
  const std::vector<Run>& runs() const { return body_->runs; }
  const std::vector<LostRun>& lost() const { return body_->lost; }
  size_t size() const { return body_->bytes.size(); }
  bool empty() const { return body_->bytes.empty(); }
  bool has_origin() const { return !body_->runs.empty() || !body_->lost.empty(); }
  const std::shared_ptr<const TextBody>& body() const { return body_; }

  /// The number of code points.
  int64_t points() const;
  bool is_ascii() const { return points() == static_cast<int64_t>(size()); }
  /// The byte offset of code point `index` in [0, points()].
  size_t byte_at(int64_t index, Work& work) const;
  /// The text of bytes [begin, end).
  Text slice(size_t begin, size_t end, Work& work) const;

 private:
  std::shared_ptr<const TextBody> body_;
};

class TextBuilder {
 public:
  explicit TextBuilder(Work& work, int64_t limit = INT64_MAX) : work_(work), limit_(limit) {}

  void append(std::string_view bytes);
  void append(char byte) { append(std::string_view(&byte, 1)); }
  void append(size_t count, char byte);
  void append(const Text& text) { append(text, 0, text.size()); }
  void append(const Text& text, size_t begin, size_t end);
  /// Bytes that represent [begin, end) of a text: all get the origin of its first byte.
  void append_for(std::string_view bytes, const Text& text, size_t begin, size_t end);
  /// The printed bytes of a caller's list, dict, number ...; -1: of the template.
  void append_owned(std::string_view bytes, int32_t source);

  Work& work() { return work_; }
  size_t size() const { return body_->bytes.size(); }
  std::string_view bytes() const { return body_->bytes; }
  Text finish();

 private:
  void grow(size_t bytes);
  void add_run(const Run& run);

  Work& work_;
  int64_t limit_;
  bool owned_ = false;  // whether the last run is from append_owned()
  std::shared_ptr<TextBody> body_ = std::make_shared<TextBody>();
};

/// `bytes` that replace `from` and have lost its origins.
Text without_origin(std::string bytes, const Text& from, const char* by, Work& work);
/// The same for bytes made from several texts.
Text without_origin(std::string bytes, const std::vector<Text>& from, const char* by, Work& work);

}  // namespace lft::text::jinja
