// Attributes and items as jinja2's sandbox looks them up, and paths of them ("a.b.0").
#pragma once
#include <string_view>
#include <vector>

#include "src/text/jinja/library/builtin.h"

namespace lft::text::jinja {

/// A bound method; undefined for one that would change the value.
Value make_method(const Value& receiver, const Builtin& method, Work& work);
/// getattr(value, name), except for loops and macros; undefined if there is no such attribute.
Value builtin_attribute(const Value& value, std::string_view name, Work& work);
/// value.name: the attribute, or else the item. Throws kInput if the value is undefined.
Value get_attribute(const Value& value, std::string_view name, Work& work);
/// value[key]: the item, or else the attribute. Throws kInput if the value is undefined.
Value get_item(const Value& value, const Value& key, Work& work);

/// The path in the argument `attribute` of a filter.
class AttributePath {
 public:
  /// A text with dots, an integer, or none, which selects the value itself.
  AttributePath(const Value& attribute, Work& work);
  /// `otherwise` replaces an undefined result, unless it is missing or none.
  Value get(const Value& value, const Value& otherwise, Work& work) const;

 private:
  std::vector<Value> parts_;
};

}  // namespace lft::text::jinja
