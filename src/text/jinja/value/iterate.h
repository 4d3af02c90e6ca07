// Going through a value as Python's iter() does.
#pragma once
#include "src/text/jinja/value/value.h"

namespace lft::text::jinja {

/// Whether iter() takes the value.
bool is_iterable(const Value& value);

class Iteration {
 public:
  /// Throws kInput unless the value can be gone through.
  Iteration(Value value, Work& work);
  /// False at the end.
  bool next(Value* item);
  /// How many are left, -1 for what has no length.
  int64_t left() const;

 private:
  Value value_;
  Work& work_;
  int64_t at_ = 0;  // an index; of a text a byte
};

/// All that is left of it, as list() does.
std::vector<Value> list_of(const Value& value, Work& work);

}  // namespace lft::text::jinja
