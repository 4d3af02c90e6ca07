// value[index] and value[start:stop:step].
#pragma once
#include "src/text/jinja/value/value.h"

namespace lft::text::jinja {

/// Missing if there is no such element or the value has no elements.
Value item_at(const Value& value, const Value& index, Work& work);
/// The bounds are none or integers.
struct Slice {
  Value start, stop, step;
};
/// Throws kInput if the value does not support slices.
Value slice_of(const Value& value, const Slice& slice, Work& work);

/// The code points in reverse order, with their origins.
Text reversed(const Text& text, Work& work);

}  // namespace lft::text::jinja
