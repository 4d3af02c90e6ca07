// Methods of str that search for a text.
#include <algorithm>

#include "src/base/errors.h"
#include "src/text/jinja/library/methods.h"
#include "src/text/jinja/value/compare.h"
#include "src/text/jinja/value/unicode.h"

namespace lft::text::jinja {
namespace {

constexpr size_t kNone = std::string_view::npos;

/// The bytes of self[start:end], whose bounds are arguments 2 and 3. `fits` is false if the start
/// is beyond the end of the text.
struct Region {
  Text text;
  size_t begin, end;
  bool fits;
  std::string_view bytes() const { return text.bytes().substr(begin, end - begin); }
};

Region region_of(const Arguments& arguments, Work& work) {
  const Text text = text_argument(arguments, 0, work);
  const int64_t length = text.points();
  const auto bound = [&](size_t i, int64_t otherwise) {
    if (!arguments.is_set(i)) return otherwise;
    int64_t at = integer_argument(arguments, i, 0, work);
    if (at < 0) at = at < -length ? 0 : at + length;
    return at;
  };
  const int64_t start = bound(2, 0), stop = std::min(bound(3, length), length);
  if (start > length || stop < start) return {text, 0, 0, false};
  return {text, text.byte_at(start, work), text.byte_at(stop, work), true};
}

/// The last position of `needle`.
size_t find_last(std::string_view text, std::string_view needle, Work& work) {
  if (needle.size() > 1)
    work.step(static_cast<int64_t>(text.size() / 64 * std::min<size_t>(needle.size(), 4096)));
  work.step(1 + static_cast<int64_t>(text.size() / 64));
  return text.rfind(needle);
}

Value place(const Region& region, size_t found) {
  if (!region.fits || found == kNone) return Value::of(int64_t{-1});
  return Value::of(count_points(region.text.bytes().substr(0, region.begin + found)));
}

Value text_find(Arguments& arguments, Work& work) {
  const Region region = region_of(arguments, work);
  const Text needle = text_argument(arguments, 1, work);
  return place(region, find_bytes(region.bytes(), needle.bytes(), 0, work));
}

Value text_rfind(Arguments& arguments, Work& work) {
  const Region region = region_of(arguments, work);
  const Text needle = text_argument(arguments, 1, work);
  return place(region, find_last(region.bytes(), needle.bytes(), work));
}

Value found_or_refused(const Value& found, Work& work) {
  if (found.integer() < 0) work.refuse("the chat template asks where a text is that is not there");
  return found;
}

Value text_index(Arguments& arguments, Work& work) {
  return found_or_refused(text_find(arguments, work), work);
}
Value text_rindex(Arguments& arguments, Work& work) {
  return found_or_refused(text_rfind(arguments, work), work);
}

Value text_count(Arguments& arguments, Work& work) {
  const Region region = region_of(arguments, work);
  const Text needle = text_argument(arguments, 1, work);
  if (!region.fits) return Value::of(int64_t{0});
  if (needle.empty()) return Value::of(count_points(region.bytes()) + 1);
  int64_t count = 0;
  for (size_t at = find_bytes(region.bytes(), needle.bytes(), 0, work); at != kNone;
       at = find_bytes(region.bytes(), needle.bytes(), at + needle.size(), work))
    ++count;
  return Value::of(count);
}

/// Whether a text of argument 1, which is a text or a tuple of texts, matches the region.
template <class Holds>
Value any_affix(Arguments& arguments, Work& work, const Holds& holds) {
  const Region region = region_of(arguments, work);
  const Value& affix = arguments[1];
  if (!affix.is(Kind::kTuple)) {
    const Text text = text_argument(arguments, 1, work);
    return Value::of(region.fits && holds(region.bytes(), text.bytes()));
  }
  for (const Value& each : affix.items()) {
    work.step();
    if (!each.is_text()) work.refuse("the chat template compares a text with what is none");
    if (region.fits && holds(region.bytes(), each.bytes())) return Value::of(true);
  }
  return Value::of(false);
}

Value text_startswith(Arguments& arguments, Work& work) {
  return any_affix(arguments, work, [](std::string_view text, std::string_view affix) {
    return text.starts_with(affix);
  });
}
Value text_endswith(Arguments& arguments, Work& work) {
  return any_affix(arguments, work, [](std::string_view text, std::string_view affix) {
    return text.ends_with(affix);
  });
}

Value text_removeprefix(Arguments& arguments, Work& work) {
  const Text text = text_argument(arguments, 0, work), prefix = text_argument(arguments, 1, work);
  if (!text.bytes().starts_with(prefix.bytes())) return arguments[0];
  return Value::of(text.slice(prefix.size(), text.size(), work));
}
Value text_removesuffix(Arguments& arguments, Work& work) {
  const Text text = text_argument(arguments, 0, work), suffix = text_argument(arguments, 1, work);
  if (!text.bytes().ends_with(suffix.bytes())) return arguments[0];
  return Value::of(text.slice(0, text.size() - suffix.size(), work));
}

}  // namespace

std::vector<Builtin> search_methods() {
  return {{"find", "-self -sub -start? -end?", text_find},
          {"rfind", "-self -sub -start? -end?", text_rfind},
          {"index", "-self -sub -start? -end?", text_index},
          {"rindex", "-self -sub -start? -end?", text_rindex},
          {"count", "-self -sub -start? -end?", text_count},
          {"startswith", "-self -prefix -start? -end?", text_startswith},
          {"endswith", "-self -suffix -start? -end?", text_endswith},
          {"removeprefix", "-self -prefix", text_removeprefix},
          {"removesuffix", "-self -suffix", text_removesuffix}};
}

}  // namespace lft::text::jinja
