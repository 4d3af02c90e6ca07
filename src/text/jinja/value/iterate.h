// Iterates over a value as Python's iter() does.
#pragma once
#include "src/text/jinja/value/value.h"

namespace lft::text::jinja {

/// Whether iter() supports the value.
bool is_iterable(const Value& value);

class Iteration {
 public:
  /// Throws kInput unless the value is iterable.
  Iteration(Value value, Work& work);
  /// Advances; false at the end.
  bool next(Value* item);
  /// The number of remaining elements, -1 for a value without a length.
  int64_t left() const;

 private:
  Value value_;
  Work& work_;
  int64_t at_ = 0;  // an index; a byte offset for a text
};

/// All remaining elements, like list().
std::vector<Value> list_of(const Value& value, Work& work);

}  // namespace lft::text::jinja
