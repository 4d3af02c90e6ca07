// How functions, filters, tests and methods are declared and called.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/text/jinja/value/value.h"

namespace lft::text::jinja {

/// Of one call. Of a filter, a test or a method the first value is what it is applied to.
struct Arguments {
  std::vector<Value> values;
  std::vector<std::pair<std::string, Value>> named;

  bool has(size_t i) const { return i < values.size() && !values[i].is_missing(); }
  /// Given, and not none.
  bool is_set(size_t i) const { return has(i) && !values[i].is(Kind::kNone); }
  const Value& operator[](size_t i) const { return values[i]; }
};

struct Builtin {
  using Run = Value (*)(Arguments& arguments, Work& work);
  /// `signature` names the parameters: "old", "count?" (may be left out), "-old" (by place only),
  /// "*" (any more by place), "**" (any more by name). Without `run` it is there, and refused by
  /// its name where it is called.
  Builtin(const char* name, const char* signature, Run run);

  const char* name;
  Run run;
  std::vector<std::string> parameters;  // "" for one that has no name
  size_t required = 0;
  bool more_values = false, more_named = false;
};

/// Puts named arguments where they belong, with missing values for those that are not given.
/// Throws kInput where they do not fit.
void fit_arguments(const Builtin& builtin, Arguments* arguments, Work& work);
/// The same, and then the call.
Value call_builtin(const Builtin& builtin, Arguments* arguments, Work& work);

/// Arguments as the types that a function wants. They throw kInput for others.
int64_t integer_argument(const Arguments& arguments, size_t i, int64_t otherwise, Work& work);
bool flag_argument(const Arguments& arguments, size_t i, bool otherwise);
Text text_argument(const Arguments& arguments, size_t i, Work& work);

/// By name; null where there is none.
const Builtin* find_filter(std::string_view name);
const Builtin* find_test(std::string_view name);
const Builtin* find_function(std::string_view name);
/// Attributes of str, list, tuple and dict.
const Builtin* find_method(Kind receiver, std::string_view name);

/// Replaces the methods that would change a list or a dict. Its call is refused.
Value unsafe_method(Arguments& arguments, Work& work);

/// Looks entries up by name.
class BuiltinTable {
 public:
  explicit BuiltinTable(std::vector<std::vector<Builtin>> parts);
  const Builtin* find(std::string_view name) const;

 private:
  std::vector<Builtin> entries_;  // sorted
};

}  // namespace lft::text::jinja
