// jinja2's global functions, and those of transformers.
#include <cstdio>
#include <ctime>

#include "src/base/errors.h"
#include "src/text/jinja/library/access.h"
#include "src/text/jinja/value/compare.h"
#include "src/text/jinja/value/iterate.h"
#include "src/text/jinja/value/print.h"

namespace lft::text::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // jinja2's own bound
constexpr int64_t kMaxBound = 1'000'000'000'000'000;

Value do_range(Arguments& arguments, Work& work) {
  const bool has_start = arguments.has(1);
  auto range = std::make_shared<RangeObject>();
  range->start = has_start ? integer_argument(arguments, 0, 0, work) : 0;
  range->stop = integer_argument(arguments, has_start ? 1 : 0, 0, work);
  range->step = integer_argument(arguments, 2, 1, work);
  if (range->step == 0) work.refuse("range() gets a step of 0");
  for (const int64_t bound : {range->start, range->stop, range->step})
    if (bound > kMaxBound || bound < -kMaxBound)
      work.refuse("range() gets a bound that is too large");
  const int64_t way = range->step > 0 ? range->stop - range->start : range->start - range->stop;
  const int64_t step = std::abs(range->step);
  range->length = way > 0 ? (way - 1) / step + 1 : 0;
  if (range->length > kMaxRange) {
    work.refuse("range() has too many elements", std::to_string(range->length),
                "at most " + std::to_string(kMaxRange));
  }
  return Value(Kind::kRange, std::move(range));
}

void add_entries(const Value& from, DictObject* dict, Work& work) {
  if (from.is(Kind::kDict)) {
    for (const auto& [key, value] : from.dict().entries) dict->set(key, value, work);
    return;
  }
  Iteration iteration(from, work);
  for (Value pair; iteration.next(&pair);) {
    const std::vector<Value> both = list_of(pair, work);
    if (both.size() != 2) work.refuse("dict() gets what is no pair");
    check_hashable(both[0], work);
    dict->set(both[0], both[1], work);
  }
}

void fill_dict(const Arguments& arguments, DictObject* dict, Work& work) {
  if (arguments.has(0)) add_entries(arguments[0], dict, work);
  for (const auto& [name, value] : arguments.named) dict->set(make_text(name, work), value, work);
}

Value do_dict(Arguments& arguments, Work& work) {
  work.take(sizeof(DictObject));
  auto dict = std::make_shared<DictObject>();
  fill_dict(arguments, dict.get(), work);
  return make_dict(std::move(dict));
}

Value do_namespace(Arguments& arguments, Work& work) {
  work.take(sizeof(NamespaceObject));
  auto space = std::make_shared<NamespaceObject>();
  fill_dict(arguments, &space->attributes, work);
  work.keep(space);
  return Value(Kind::kNamespace, std::move(space));
}

Value do_cycler(Arguments& arguments, Work& work) {
  if (arguments.values.empty()) work.refuse("cycler() gets nothing to cycle through");
  work.take(sizeof(CyclerObject) + arguments.values.size() * sizeof(Value));
  auto cycler = std::make_shared<CyclerObject>();
  for (const Value& item : arguments.values) nest(cycler.get(), item, work);
  cycler->items = std::move(arguments.values);
  return Value(Kind::kCycler, std::move(cycler));
}

Value do_joiner(Arguments& arguments, Work& work) {
  work.take(sizeof(JoinerObject));
  auto joiner = std::make_shared<JoinerObject>();
  joiner->separator = arguments.has(0) ? arguments[0] : make_text(", ", work);
  nest(joiner.get(), joiner->separator, work);
  return Value(Kind::kJoiner, std::move(joiner));
}

Value do_raise_exception(Arguments& arguments, Work& work) {
  work.reject(std::string(text_of(arguments[0], work).bytes()));
}

/// Parses "2024-07-26", with or without "T12:30:00".
std::tm parse_date(const std::string& date, Work& work) {
  std::tm time{};
  const int fields =
      std::sscanf(date.c_str(), "%4d-%2d-%2d%*1[T ]%2d:%2d:%2d", &time.tm_year, &time.tm_mon,
                  &time.tm_mday, &time.tm_hour, &time.tm_min, &time.tm_sec);
  if (fields < 3)
    work.refuse("the chat template asks for the date, and none is given", quote_text(date, 40),
                "a date as 2024-07-26");
  time.tm_year -= 1900;
  time.tm_mon -= 1;
  std::tm normal = time;
  timegm(&normal);
  return normal;
}

Value do_strftime_now(Arguments& arguments, Work& work) {
  const std::tm time = parse_date(work.date(), work);
  std::string format;
  const Text given = text_argument(arguments, 0, work);
  const std::string_view bytes = given.bytes();
  if (bytes.size() > 1000) work.refuse("strftime_now() gets a format that is too long");
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] == '%' && i + 1 < bytes.size() && bytes[i + 1] == 'f') {
      format += "000000";  // a date has no microseconds
      ++i;
    } else if (bytes[i] == '%' && i + 1 < bytes.size()) {
      if (bytes[i + 1] >= '0' && bytes[i + 1] <= '9')
        work.unsupported("width in a date's format", std::string(bytes.substr(i, 2)));
      format += bytes.substr(i, 2);
      ++i;
    } else {
      format += bytes[i];
    }
  }
  std::string out(format.size() * 64 + 64, '\0');
  out.resize(std::strftime(out.data(), out.size(), format.c_str(), &time));
  return make_text(std::move(out), work);
}

}  // namespace

const Builtin* find_function(std::string_view name) {
  static const BuiltinTable table({{{"range", "-a -b? -c?", do_range},
                                    {"dict", "-from? **", do_dict},
                                    {"namespace", "-from? **", do_namespace},
                                    {"cycler", "*", do_cycler},
                                    {"joiner", "sep?", do_joiner},
                                    {"lipsum", "* **", nullptr},
                                    {"raise_exception", "message", do_raise_exception},
                                    {"strftime_now", "format", do_strftime_now}}});
  return table.find(name);
}

}  // namespace lft::text::jinja
