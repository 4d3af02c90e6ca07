// Helpers of text methods and filters. Results keep the origins of copied characters.
#pragma once
#include <vector>

#include "src/text/jinja/value/value.h"

namespace lft::text::jinja {

/// Removes characters in `characters` from both ends; null: white space.
Text strip(const Text& text, const Text* characters, bool left, bool right, Work& work);
/// Replaces the first `count` of `old` (negative: all). An empty `old` matches between characters.
Text replaced(const Text& text, const Text& old, const Text& with, int64_t count, Work& work);
/// Centres the text as str.center() does. `fill` is one character.
Text centered(const Text& text, int64_t width, const Text& fill, Work& work);
/// Pads with `left` and `right` fill characters.
Text padded(const Text& text, int64_t left, int64_t right, const Text& fill, Work& work);
/// Implements str.splitlines().
std::vector<Text> split_lines(const Text& text, bool keep_ends, Work& work);
/// A changed text, whose origins are recorded as lost by `by`; an unchanged text itself.
Value rewritten(std::string bytes, const Text& text, const char* by, Work& work);
/// Whether \w matches it.
bool is_word_point(char32_t point);

}  // namespace lft::text::jinja
