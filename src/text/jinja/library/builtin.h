// Declaration and calls of functions, filters, tests and methods.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/text/jinja/value/value.h"

namespace lft::text::jinja {

/// Arguments of one call. The first value of a filter, test or method is its operand.
struct Arguments {
  std::vector<Value> values;
  std::vector<std::pair<std::string, Value>> named;

  bool has(size_t i) const { return i < values.size() && !values[i].is_missing(); }
  /// Whether the argument is given and not none.
  bool is_set(size_t i) const { return has(i) && !values[i].is(Kind::kNone); }
  const Value& operator[](size_t i) const { return values[i]; }
};

struct Builtin {
  using Run = Value (*)(Arguments& arguments, Work& work);
  /// `signature` lists the parameters: "old", "count?" (optional), "-old" (positional only), "*"
  /// (more positional ones), "**" (more named ones). Without `run` the function exists but is
  /// refused by name when it is called.
  Builtin(const char* name, const char* signature, Run run);

  const char* name;
  Run run;
  std::vector<std::string> parameters;  // "" for one without a name
  size_t required = 0;
  bool more_values = false, more_named = false;
};

/// Binds named arguments to parameters, with missing values for omitted ones. Throws kInput if they
/// do not match.
void fit_arguments(const Builtin& builtin, Arguments* arguments, Work& work);
/// Binds the arguments and calls the function.
Value call_builtin(const Builtin& builtin, Arguments* arguments, Work& work);

/// Arguments converted to the type that a function needs. They throw kInput for other types.
int64_t integer_argument(const Arguments& arguments, size_t i, int64_t otherwise, Work& work);
bool flag_argument(const Arguments& arguments, size_t i, bool otherwise);
Text text_argument(const Arguments& arguments, size_t i, Work& work);

/// Finds a test or a function by name; null if there is none.
const Builtin* find_test(std::string_view name);
const Builtin* find_function(std::string_view name);

/// Replaces methods that would change a list or a dict. Calls are refused.
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
