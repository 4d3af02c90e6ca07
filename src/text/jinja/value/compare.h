// Equality, order and membership as Python has them. Every element looked at is a step.
#pragma once
#include "src/text/jinja/value/value.h"

namespace lft::text::jinja {

bool equals(const Value& a, const Value& b, Work& work);
/// a < b. Throws kInput where Python has no order between them; `sign` is what the message names.
bool less(const Value& a, const Value& b, Work& work, const char* sign = "<");
/// a <= b, likewise.
bool less_or_equal(const Value& a, const Value& b, Work& work, const char* sign);
/// `item in container`. Throws kInput where it is none. It uses up an iterator.
bool contains(const Value& container, const Value& item, Work& work);

/// Whether it can be a key.
bool is_hashable(const Value& value, Work& work);
/// Equal for equal values. The value is hashable.
size_t hash_of(const Value& value, Work& work);
/// Throws kInput unless it can be a key.
void check_hashable(const Value& value, Work& work);

/// Where `needle` begins in `text` at `from` or after it, npos where it does not; in linear time.
size_t find_bytes(std::string_view text, std::string_view needle, size_t from, Work& work);

}  // namespace lft::text::jinja
