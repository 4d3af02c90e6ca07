// What one rendering may still use, and where in its template it is. It knows no values.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/common/error.h"

namespace lft::text::jinja {

/// Templates come with models from anywhere, so that everything a template can make grow is
/// bounded.
struct Limits {
  int64_t steps = 3'000'000;        // evaluated expressions, and what library functions look at
  int64_t output_bytes = 64 << 20;  // of the text that comes out
  int64_t memory_bytes = 96 << 20;  // of all texts and lists made, those freed again included
  int depth = 1000;                 // of expressions, statements and calls within each other
};
/// Values within values. Reading, comparing, printing and freeing them descends as deep.
inline constexpr int kMaxValueDepth = 100;

/// raise_exception() of a template: it does not take this conversation. The template itself is
/// fine.
class Refused : public Error {
 public:
  using Error::Error;
};

/// What a Value can share.
struct Object {
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
  /// Releases values that may contain this object.
  virtual void release() {}
  int depth = 0;  // of values within it
};

class Work {
 public:
  /// `where` names the template; `date` is what strftime_now() shows.
  Work(const Limits& limits, const std::string& where, std::string date = {})
      : limits_(limits),
        where_(where),
        date_(std::move(date)),
        steps_(limits.steps),
        memory_(limits.memory_bytes) {}
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  ~Work();

  /// Throws kInput where the budget is used up.
  void step(int64_t count = 1) {
    if (count > steps_) spent("steps", limits_.steps);
    steps_ -= count;
  }
  /// For the creation of a value of so many bytes; a step for every 64 of them.
  void take(size_t bytes) {
    if (bytes > static_cast<size_t>(memory_)) spent("bytes of memory", limits_.memory_bytes);
    memory_ -= static_cast<int64_t>(bytes);
    step(1 + static_cast<int64_t>(bytes / 64));
  }
  /// Of `count` copies of `bytes` each, without an overflow.
  void take_many(uint64_t count, uint64_t bytes) {
    if (bytes != 0 && count > static_cast<uint64_t>(memory_) / bytes)
      spent("bytes of memory", limits_.memory_bytes);
    take(count * bytes);
  }
  const Limits& limits() const { return limits_; }
  const std::string& date() const { return date_; }

  /// The line that the template is at.
  void at(uint32_t line) { line_ = line; }
  uint32_t line() const { return line_; }
  /// Throws Error(kInput) at this line.
  [[noreturn]] void refuse(std::string what, std::string found = {}, std::string expected = {},
                           std::string next = {}) const;
  /// For what jinja2 has and lft has not.
  [[noreturn]] void unsupported(const std::string& what, const std::string& name) const;
  /// Throws Refused.
  [[noreturn]] void reject(std::string message) const;

  /// Keeps an object that changes until the end, when it is released: objects may contain each
  /// other.
  void keep(std::shared_ptr<Object> object);

  /// The number of what loses origins: `name` at this line.
  uint32_t loser(const std::string& name);
  /// "upper, line 12".
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
