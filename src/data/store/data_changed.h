// Errors for data that has changed since it was opened, or is damaged.
#pragma once
#include <string>
#include <utility>

#include "kernels/common/error.h"

namespace lft::data {

/// A kInput error that is not a bad sample: on_bad_sample: skip does not apply.
class DataChanged : public Error {
 public:
  explicit DataChanged(ErrorInfo info) : Error(ErrorKind::kInput, std::move(info)) {}
  DataChanged(const std::string& where, const std::string& found)
      : DataChanged(ErrorInfo{"the data changed while it was read", where, found,
                              "what it was at the start", "restore it, or start a new run"}) {}
};

[[noreturn]] inline void refuse_damaged(const std::string& where, const std::string& found,
                                        const std::string& expected) {
  throw DataChanged(
      ErrorInfo{"the prepared data is damaged", where, found, expected, "run lft prepare again"});
}

}  // namespace lft::data
