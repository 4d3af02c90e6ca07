// The only error type of lft, for errors caused by a user, a file or a machine. Mistakes in the
// program are asserts.
#pragma once
#include <stdexcept>
#include <string>
#include <utility>

namespace lft {

/// The kind is the exit code of the process.
enum class ErrorKind : int {
  kInternal = 1,    // a bug in lft
  kUsage = 2,       // command line or recipe
  kInput = 3,       // model, adapter, tokenizer or data
  kCheckpoint = 4,  // checkpoint unusable
  kNumeric = 5,     // non-finite
  kResource = 6,    // disk, memory, device
};

/// The text of one error. Empty parts are omitted.
struct ErrorInfo {
  std::string what;   // one line, without a full stop
  std::string where;  // file:line, key path, tensor name, sample id
  std::string found;
  std::string expected;
  std::string next;  // the advice to the user
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, ErrorInfo info)
      : std::runtime_error(info.what), kind_(kind), info_(std::move(info)) {}
  Error(ErrorKind kind, std::string what)
      : Error(kind, ErrorInfo{std::move(what), {}, {}, {}, {}}) {}
  ErrorKind kind() const { return kind_; }
  const ErrorInfo& info() const { return info_; }

 private:
  ErrorKind kind_;
  ErrorInfo info_;
};

/// Throws Error(kind, {what, where, found, expected, next}).
[[noreturn]] inline void refuse(ErrorKind kind, std::string what, std::string where,
                                std::string found = {}, std::string expected = {},
                                std::string next = {}) {
  throw Error(kind, {std::move(what), std::move(where), std::move(found), std::move(expected),
                     std::move(next)});
}

}  // namespace lft
