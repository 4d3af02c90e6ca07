// map, select, reject, selectattr and rejectattr, and the table of all filters. All elements are
// evaluated at once, where jinja2 evaluates them lazily.
#include "src/base/errors.h"
#include "src/text/jinja/library/access.h"
#include "src/text/jinja/library/filters.h"
#include "src/text/jinja/value/iterate.h"

namespace lft::text::jinja {
namespace {

/// Calls a filter or test by name on each value, with the same further arguments.
class NamedCall {
 public:
  /// The name is the argument at `at`; the following arguments are passed to the call.
  NamedCall(const Arguments& arguments, size_t at, bool is_filter, Work& work)
      : values_(arguments.values.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                arguments.values.end()),
        named_(arguments.named) {
    const Text name = text_argument(arguments, at, work);
    builtin_ = is_filter ? find_filter(name.bytes()) : find_test(name.bytes());
    if (builtin_ == nullptr) {
      work.refuse(std::string("the chat template uses a ") + (is_filter ? "filter" : "test") +
                      " that there is not",
                  quote_text(name.bytes(), 40));
    }
  }

  Value operator()(const Value& value, Work& work) const {
    Arguments arguments{.values = {value}, .named = named_};
    work.step(1 + static_cast<int64_t>(values_.size() + named_.size()));
    arguments.values.insert(arguments.values.end(), values_.begin(), values_.end());
    return call_builtin(*builtin_, &arguments, work);
  }

 private:
  const Builtin* builtin_ = nullptr;
  std::vector<Value> values_;
  std::vector<std::pair<std::string, Value>> named_;
};

Value map_attribute(const Arguments& arguments, Work& work) {
  Value attribute, otherwise;
  for (const auto& [name, value] : arguments.named) {
    if (name == "attribute") {
      attribute = value;
    } else if (name == "default") {
      otherwise = value;
    } else {
      work.refuse("the filter map gets an argument that it does not have", quote_text(name, 40));
    }
  }
  const AttributePath path(attribute, work);
  std::vector<Value> out;
  Iteration iteration(arguments[0], work);
  for (Value item; iteration.next(&item);) out.push_back(path.get(item, otherwise, work));
  return make_iterator(std::move(out), work);
}

Value do_map(Arguments& arguments, Work& work) {
  if (!truth(arguments[0])) return make_iterator({}, work);
  if (arguments.values.size() == 1) {
    for (const auto& each : arguments.named)
      if (each.first == "attribute") return map_attribute(arguments, work);
    work.refuse("the filter map gets neither a filter nor an attribute");
  }
  const NamedCall call(arguments, 1, true, work);
  std::vector<Value> out;
  Iteration iteration(arguments[0], work);
  for (Value item; iteration.next(&item);) out.push_back(call(item, work));
  return make_iterator(std::move(out), work);
}

/// Values for which the test at argument `at`, or else their truth, is `wanted`.
Value pick(const Arguments& arguments, bool by_attribute, bool wanted, Work& work) {
  const Value& value = arguments[0];
  if (!truth(value)) return make_iterator({}, work);
  const size_t at = by_attribute ? 2 : 1;
  if (arguments.values.size() < at)
    work.refuse("a filter that selects by an attribute gets no attribute");
  const AttributePath path(by_attribute ? arguments[1] : Value(), work);
  const bool has_test = arguments.values.size() > at;
  std::vector<Value> out;
  Iteration iteration(value, work);
  for (Value item; iteration.next(&item);) {
    const Value subject = path.get(item, Value(), work);
    const Value verdict = has_test ? NamedCall(arguments, at, false, work)(subject, work) : subject;
    if (truth(verdict) == wanted) out.push_back(item);
  }
  return make_iterator(std::move(out), work);
}

Value do_select(Arguments& arguments, Work& work) { return pick(arguments, false, true, work); }
Value do_reject(Arguments& arguments, Work& work) { return pick(arguments, false, false, work); }
Value do_selectattr(Arguments& arguments, Work& work) { return pick(arguments, true, true, work); }
Value do_rejectattr(Arguments& arguments, Work& work) { return pick(arguments, true, false, work); }

}  // namespace

std::vector<Builtin> pick_filters() {
  return {{"map", "-value * **", do_map},
          {"select", "-value * **", do_select},
          {"reject", "-value * **", do_reject},
          {"selectattr", "-value * **", do_selectattr},
          {"rejectattr", "-value * **", do_rejectattr}};
}

const Builtin* find_filter(std::string_view name) {
  static const BuiltinTable table({text_filters(), html_filters(), list_filters(), order_filters(),
                                   pick_filters(), number_filters()});
  return table.find(name);
}

}  // namespace lft::text::jinja
