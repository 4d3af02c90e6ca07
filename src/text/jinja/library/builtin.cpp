#include "src/text/jinja/library/builtin.h"

#include <algorithm>
#include <sstream>

#include "src/base/errors.h"

namespace lft::text::jinja {

Builtin::Builtin(const char* name, const char* signature, Run run) : name(name), run(run) {
  std::istringstream words(signature);
  for (std::string word; words >> word;) {
    if (word == "*") {
      more_values = true;
    } else if (word == "**") {
      more_named = true;
    } else {
      const bool optional = word.ends_with('?');
      if (optional) word.pop_back();
      required += optional ? 0 : 1;
      parameters.push_back(word.starts_with('-') ? "" : word);
    }
  }
}

void fit_arguments(const Builtin& builtin, Arguments* arguments, Work& work) {
  auto& values = arguments->values;
  const auto fail = [&](const std::string& what) {
    work.refuse("the chat template calls " + quote_text(builtin.name) + " wrongly", what);
  };
  if (values.size() > builtin.parameters.size() && !builtin.more_values)
    fail(std::to_string(values.size()) + " values, more than it takes");
  const size_t given = values.size();
  if (values.size() < builtin.parameters.size()) values.resize(builtin.parameters.size());
  if (!arguments->named.empty()) {
    std::vector<std::pair<std::string, Value>> more;
    for (auto& [name, value] : arguments->named) {
      const auto found = std::find(builtin.parameters.begin(), builtin.parameters.end(), name);
      const auto at = static_cast<size_t>(found - builtin.parameters.begin());
      if (found == builtin.parameters.end()) {
        if (!builtin.more_named) fail("it has no parameter " + quote_text(name, 40));
        more.emplace_back(name, std::move(value));
      } else if (at < given) {
        fail("two values for " + quote_text(name, 40));
      } else {
        values[at] = std::move(value);
      }
    }
    arguments->named = std::move(more);
  }
  for (size_t i = given; i < builtin.required; ++i)
    if (values[i].is_missing()) fail("it needs " + std::to_string(builtin.required) + " values");
}

Value call_builtin(const Builtin& builtin, Arguments* arguments, Work& work) {
  work.step();
  if (builtin.run == nullptr) work.unsupported("function", builtin.name);
  fit_arguments(builtin, arguments, work);
  return builtin.run(*arguments, work);
}

int64_t integer_argument(const Arguments& arguments, size_t i, int64_t otherwise, Work& work) {
  if (!arguments.has(i)) return otherwise;
  if (arguments[i].is_integral()) return arguments[i].integer();
  work.refuse("the chat template gives a function what is no integer", type_name(arguments[i]),
              "an integer");
}

bool flag_argument(const Arguments& arguments, size_t i, bool otherwise) {
  return arguments.has(i) ? truth(arguments[i]) : otherwise;
}

Text text_argument(const Arguments& arguments, size_t i, Work& work) {
  if (arguments[i].is_text()) return arguments[i].text();
  work.refuse("the chat template gives a function what is no text", type_name(arguments[i]),
              "a text");
}

Value unsafe_method(Arguments&, Work& work) {
  work.refuse("the chat template changes a list or a dict, which no template may", {}, {},
              "use `+` or a namespace in the chat template, or another template");
}

BuiltinTable::BuiltinTable(std::vector<std::vector<Builtin>> parts) {
  for (auto& part : parts)
    for (Builtin& entry : part) entries_.push_back(std::move(entry));
  std::sort(entries_.begin(), entries_.end(),
            [](const Builtin& a, const Builtin& b) { return std::string_view(a.name) < b.name; });
}

const Builtin* BuiltinTable::find(std::string_view name) const {
  const auto found = std::lower_bound(
      entries_.begin(), entries_.end(), name,
      [](const Builtin& entry, std::string_view wanted) { return entry.name < wanted; });
  return found != entries_.end() && found->name == name ? &*found : nullptr;
}

}  // namespace lft::text::jinja
