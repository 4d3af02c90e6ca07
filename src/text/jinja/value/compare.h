// Equality, order and membership as in Python. Every compared element costs a step.
#pragma once
#include "src/text/jinja/value/value.h"

namespace lft::text::jinja {

bool equals(const Value& a, const Value& b, Work& work);
/// a < b. Throws kInput if Python does not order them; `sign` is the operator in the message.
bool less(const Value& a, const Value& b, Work& work, const char* sign = "<");
/// a <= b, likewise.
bool less_or_equal(const Value& a, const Value& b, Work& work, const char* sign);
/// `item in container`. Throws kInput if it is no container. Consumes an iterator.
bool contains(const Value& container, const Value& item, Work& work);

/// Whether the value can be a key.
bool is_hashable(const Value& value, Work& work);
/// Equal values have equal hashes. The value must be hashable.
size_t hash_of(const Value& value, Work& work);
/// Throws kInput unless the value can be a key.
void check_hashable(const Value& value, Work& work);

/// The first position of `needle` in `text` from `from` on, or npos; in linear time.
size_t find_bytes(std::string_view text, std::string_view needle, size_t from, Work& work);

}  // namespace lft::text::jinja
