// The remaining budget of one rendering and its position in the template. Independent of values.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/common/error.h"

namespace lft::text::jinja {

/// Limits of a rendering. Templates are untrusted (they come with models), so everything that can
/// grow is limited.
struct Limits {
  int64_t steps = 3'000'000;        // evaluated expressions, and elements visited by functions
  int64_t output_bytes = 64 << 20;  // size of the output
  int64_t memory_bytes = 96 << 20;  // all texts and lists made, including those freed since
  int depth = 1000;                 // nesting of expressions, statements and calls
};
/// Nesting of values. Reading, comparing, printing and freeing recurse as deep.
inline constexpr int kMaxValueDepth = 100;

/// raise_exception() of a template: it does not accept this conversation. The template itself is
/// valid.
class Refused : public Error {
 public:
  using Error::Error;
};

/// The base of shared contents of values.
struct Object {
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
  /// Releases values that may refer to this object.
  virtual void release() {}
  int depth = 0;  // nesting of values in it
};

class Work {
 public:
  /// `where` names the template; `date` is the date for strftime_now().
  Work(const Limits& limits, const std::string& where, std::string date = {})
      : limits_(limits),
        where_(where),
        date_(std::move(date)),
        steps_(limits.steps),
        memory_(limits.memory_bytes) {}
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  ~Work();

  /// Throws kInput if the budget is exhausted.
  void step(int64_t count = 1) {
    if (count > steps_) spent("steps", limits_.steps);
    steps_ -= count;
  }
  /// Charges for a value of this many bytes; one step per 64 bytes.
  void take(size_t bytes) {
    if (bytes > static_cast<size_t>(memory_)) spent("bytes of memory", limits_.memory_bytes);
    memory_ -= static_cast<int64_t>(bytes);
    step(1 + static_cast<int64_t>(bytes / 64));
  }
  /// Charges for `count` copies of `bytes` each, without overflow.
  void take_many(uint64_t count, uint64_t bytes) {
    if (bytes != 0 && count > static_cast<uint64_t>(memory_) / bytes)
      spent("bytes of memory", limits_.memory_bytes);
    take(count * bytes);
  }
  const Limits& limits() const { return limits_; }
  const std::string& date() const { return date_; }

  /// The current line in the template.
  void at(uint32_t line) { line_ = line; }
  uint32_t line() const { return line_; }
  /// Throws Error(kInput) with the current line.
  [[noreturn]] void refuse(std::string what, std::string found = {}, std::string expected = {},
                           std::string next = {}) const;
  /// For features of jinja2 that lft does not support.
  [[noreturn]] void unsupported(const std::string& what, const std::string& name) const;
  /// Throws Refused.
  [[noreturn]] void reject(std::string message) const;

  /// Keeps a mutable object until the end, when it is released: objects may refer to each
  /// other.
  void keep(std::shared_ptr<Object> object);

  /// The number of a function that loses origins: `name` at the current line.
  uint32_t loser(const std::string& name);
  /// The text for that number: "upper, line 12".
  const std::string& loser_name(uint32_t number) const { return losers_[number]; }

 private:
  [[noreturn]] void spent(const std::string& unit, int64_t limit) const;
  std::string place() const { return where_ + ":" + std::to_string(line_); }

  const Limits limits_;
  const std::string where_, date_;
  int64_t steps_, memory_;
  uint32_t line_ = 1;
  std::vector<std::string> losers_;
  std::vector<std::shared_ptr<Object>> kept_;
};

}  // namespace lft::text::jinja
