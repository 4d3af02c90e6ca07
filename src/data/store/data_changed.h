// The data that a run reads is no longer what it opened, or is damaged.
#pragma once
#include <string>
#include <utility>

#include "kernels/common/error.h"

namespace lft::data {

/// kInput, and no bad sample: on_bad_sample: skip leaves none out for it.
class DataChanged : public Error {
 public:
  explicit DataChanged(ErrorInfo info) : Error(ErrorKind::kInput, std::move(info)) {}
  DataChanged(const std::string& where, const std::string& found)
      : DataChanged(ErrorInfo{"the data changed while it was read", where, found,
                              "what it was at the start", "put it back as it was, or start anew"}) {
  }
};

[[noreturn]] inline void refuse_damaged(const std::string& where, const std::string& found,
                                        const std::string& expected) {
  throw DataChanged(
      ErrorInfo{"the prepared data is damaged", where, found, expected, "run lft prepare again"});
}

}  // namespace lft::data
