// Methods of str that trim or pad, its format(), the methods of list, tuple, dict and cycler, and
// the table of all methods.
#include <algorithm>

#include "src/base/errors.h"
#include "src/text/jinja/library/braces.h"
#include "src/text/jinja/library/methods.h"
#include "src/text/jinja/library/strings.h"
#include "src/text/jinja/value/compare.h"

namespace lft::text::jinja {
namespace {

Value stripped(const Arguments& arguments, bool left, bool right, Work& work) {
  const Text text = text_argument(arguments, 0, work);
  if (!arguments.is_set(1)) return Value::of(strip(text, nullptr, left, right, work));
  const Text characters = text_argument(arguments, 1, work);
  return Value::of(strip(text, &characters, left, right, work));
}

Value text_strip(Arguments& arguments, Work& work) { return stripped(arguments, true, true, work); }
Value text_lstrip(Arguments& arguments, Work& work) {
  return stripped(arguments, true, false, work);
}
Value text_rstrip(Arguments& arguments, Work& work) {
  return stripped(arguments, false, true, work);
}

Value text_replace(Arguments& arguments, Work& work) {
  return Value::of(replaced(text_argument(arguments, 0, work), text_argument(arguments, 1, work),
                            text_argument(arguments, 2, work),
                            integer_argument(arguments, 3, -1, work), work));
}

Text fill_argument(const Arguments& arguments, Work& work) {
  Text fill = arguments.has(2) ? text_argument(arguments, 2, work) : Text(" ");
  if (fill.points() != 1) work.refuse("the chat template fills a text with no single character");
  return fill;
}

int64_t missing_width(const Arguments& arguments, const Text& text, Work& work) {
  const int64_t width = integer_argument(arguments, 1, 0, work);
  return width > text.points() ? width - text.points() : 0;
}

Value text_center(Arguments& arguments, Work& work) {
  return Value::of(centered(text_argument(arguments, 0, work),
                            integer_argument(arguments, 1, 0, work), fill_argument(arguments, work),
                            work));
}

Value text_ljust(Arguments& arguments, Work& work) {
  const Text text = text_argument(arguments, 0, work);
  return Value::of(
      padded(text, 0, missing_width(arguments, text, work), fill_argument(arguments, work), work));
}

Value text_rjust(Arguments& arguments, Work& work) {
  const Text text = text_argument(arguments, 0, work);
  return Value::of(
      padded(text, missing_width(arguments, text, work), 0, fill_argument(arguments, work), work));
}

Value text_zfill(Arguments& arguments, Work& work) {
  const Text text = text_argument(arguments, 0, work);
  const int64_t count = missing_width(arguments, text, work);
  const bool has_sign = !text.empty() && (text.bytes()[0] == '-' || text.bytes()[0] == '+');
  TextBuilder out(work);
  if (has_sign) out.append(text, 0, 1);
  out.append(padded(text.slice(has_sign ? 1 : 0, text.size(), work), count, 0, Text("0"), work));
  return Value::of(out.finish());
}

Value text_format(Arguments& arguments, Work& work) { return format_braces(arguments, work); }

Value list_index(Arguments& arguments, Work& work) {
  const auto& items = arguments[0].items();
  const auto length = static_cast<int64_t>(items.size());
  const auto bound = [&](size_t i, int64_t otherwise) {
    int64_t at = integer_argument(arguments, i, otherwise, work);
    if (at < 0) at = at < -length ? 0 : at + length;
    return std::min(at, length);
  };
  const int64_t stop = bound(3, length);
  for (int64_t i = bound(2, 0); i < stop; ++i)
    if (equals(items[static_cast<size_t>(i)], arguments[1], work)) return Value::of(i);
  work.refuse("the chat template asks where an element is that is not there");
}

Value list_count(Arguments& arguments, Work& work) {
  int64_t count = 0;
  for (const Value& item : arguments[0].items()) count += equals(item, arguments[1], work) ? 1 : 0;
  return Value::of(count);
}

Value same_value(Arguments& arguments, Work&) { return arguments[0]; }

Value dict_get(Arguments& arguments, Work& work) {
  check_hashable(arguments[1], work);
  const Value* found = arguments[0].dict().find(arguments[1], work);
  if (found != nullptr) return *found;
  return arguments.has(2) ? arguments[2] : Value::none();
}

Value cycler_next(Arguments& arguments, Work&) {
  auto& cycler = arguments[0].changing<CyclerObject>();
  Value current = cycler.items[cycler.at];
  cycler.at = (cycler.at + 1) % cycler.items.size();
  return current;
}

Value cycler_reset(Arguments& arguments, Work&) {
  arguments[0].changing<CyclerObject>().at = 0;
  return Value::none();
}

template <ViewObject::Part part>
Value dict_view(Arguments& arguments, Work& work) {
  work.take(sizeof(ViewObject));
  auto view = std::make_shared<ViewObject>();
  nest(view.get(), arguments[0], work);
  view->part = part;
  view->dict = arguments[0];
  return Value(Kind::kView, std::move(view));
}

}  // namespace

std::vector<Builtin> shape_methods() {
  return {{"strip", "-self -chars?", text_strip},
          {"lstrip", "-self -chars?", text_lstrip},
          {"rstrip", "-self -chars?", text_rstrip},
          {"replace", "-self -old -new -count?", text_replace},
          {"center", "-self -width -fillchar?", text_center},
          {"ljust", "-self -width -fillchar?", text_ljust},
          {"rjust", "-self -width -fillchar?", text_rjust},
          {"zfill", "-self -width", text_zfill},
          {"format", "-self * **", text_format}};
}

const Builtin* find_method(Kind receiver, std::string_view name) {
  static const BuiltinTable texts(
      {case_methods(), search_methods(), split_methods(), shape_methods()});
  static const BuiltinTable tuples({{{"index", "-self -value -start? -stop?", list_index},
                                     {"count", "-self -value", list_count}}});
  static const BuiltinTable lists({{{"index", "-self -value -start? -stop?", list_index},
                                    {"count", "-self -value", list_count},
                                    {"copy", "-self", same_value},
                                    {"append", "*", unsafe_method},
                                    {"clear", "*", unsafe_method},
                                    {"extend", "*", unsafe_method},
                                    {"insert", "*", unsafe_method},
                                    {"pop", "*", unsafe_method},
                                    {"remove", "*", unsafe_method},
                                    {"reverse", "*", unsafe_method},
                                    {"sort", "* **", unsafe_method}}});
  static const BuiltinTable dicts({{{"get", "-self -key -default?", dict_get},
                                    {"items", "-self", dict_view<ViewObject::Part::kItems>},
                                    {"keys", "-self", dict_view<ViewObject::Part::kKeys>},
                                    {"values", "-self", dict_view<ViewObject::Part::kValues>},
                                    {"copy", "-self", same_value},
                                    {"fromkeys", "*", nullptr},
                                    {"clear", "*", unsafe_method},
                                    {"pop", "*", unsafe_method},
                                    {"popitem", "*", unsafe_method},
                                    {"setdefault", "*", unsafe_method},
                                    {"update", "* **", unsafe_method}}});
  static const BuiltinTable cyclers(
      {{{"next", "-self", cycler_next}, {"reset", "-self", cycler_reset}}});
  switch (receiver) {
    case Kind::kText:
      return texts.find(name);
    case Kind::kTuple:
      return tuples.find(name);
    case Kind::kList:
      return lists.find(name);
    case Kind::kDict:
      return dicts.find(name);
    case Kind::kCycler:
      return cyclers.find(name);
    default:
      return nullptr;
  }
}

}  // namespace lft::text::jinja
