// The data that a run reads is no longer what it opened.
#pragma once
#include <string>

#include "kernels/common/error.h"

namespace lft::data {

/// kInput, and no bad sample: on_bad_sample: skip leaves none out for it.
class DataChanged : public Error {
 public:
  DataChanged(const std::string& where, const std::string& found)
      : Error(ErrorKind::kInput,
              {"the data changed while it was read", where, found, "what it was at the start",
               "put it back as it was, or start anew"}) {}
};

}  // namespace lft::data
