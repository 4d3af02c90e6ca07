// The operators + - * / // % ** and the signs, with Python's semantics. An integer of more than 64
// bits is refused.
#pragma once
#include "src/text/jinja/value/value.h"

namespace lft::text::jinja {

enum class Operator : uint8_t { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow };

Value calculate(Operator sign, const Value& a, const Value& b, Work& work);
Value negate(const Value& value, Work& work);
/// Unary +value.
Value posit(const Value& value, Work& work);

/// Throws kInput for an integer that no double represents, and for other types.
Value integer_of(double value, Work& work);

}  // namespace lft::text::jinja
