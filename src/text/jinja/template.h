// Chat templates: Jinja rendered as jinja2 does with transformers' settings, with the origin of
// every output character. No files, imports or other templates; all resources are limited.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/text/jinja/syntax/lexer.h"
#include "src/text/jinja/value/value.h"

namespace lft::text::jinja {

struct Program;

struct RenderOptions {
  Limits limits;
  std::string date;  // the date for strftime_now(): 2024-07-26, or 2024-07-26T12:30:00
};

struct Rendering {
  struct Span {
    size_t begin, end;
  };
  Text text;
  std::vector<Span> generation;      // byte ranges inside {% generation %}
  std::vector<int32_t> lost;         // sources that were printed without their origin
  std::vector<std::string> lost_by;  // the function that lost each origin: "upper, line 12"
};

class Template {
 public:
  /// Throws Error(kInput), with `where` and the line, for an invalid or unsupported template.
  static Template parse(std::string_view source, const std::string& where,
                        const Options& options = {});
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;
  ~Template();

  /// `globals` is a dict (Value::from_json). Throws Refused if the template refuses the
  /// conversation, else Error(kInput). Thread-safe.
  Rendering render(const Value& globals, const RenderOptions& options = {}) const;
  bool marks_generation() const;

 private:
  Template(std::unique_ptr<const Program> program, std::string where);

  std::unique_ptr<const Program> program_;
  std::string where_;
};

}  // namespace lft::text::jinja
