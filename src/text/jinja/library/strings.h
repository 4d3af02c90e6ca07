// What methods and filters of texts share. Results keep the origins of the characters they copy.
#pragma once
#include <vector>

#include "src/text/jinja/value/value.h"

namespace lft::text::jinja {

/// Without the characters at its ends that `characters` has; null: white space.
Text strip(const Text& text, const Text* characters, bool left, bool right, Work& work);
/// The first `count` of `old`, all where it is negative. An empty `old` is between all characters.
Text replaced(const Text& text, const Text& old, const Text& with, int64_t count, Work& work);
/// In the middle of a field, as str.center() has it. `fill` is one character.
Text centered(const Text& text, int64_t width, const Text& fill, Work& work);
/// With `left` and `right` times the fill around it.
Text padded(const Text& text, int64_t left, int64_t right, const Text& fill, Work& work);
/// str.splitlines().
std::vector<Text> split_lines(const Text& text, bool keep_ends, Work& work);
/// A changed text, which loses its origins by `by`; the text itself where nothing changed.
Value rewritten(std::string bytes, const Text& text, const char* by, Work& work);
/// Whether \w has it.
bool is_word_point(char32_t point);

}  // namespace lft::text::jinja
