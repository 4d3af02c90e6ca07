// Chat templates: Jinja as jinja2 renders it in transformers' setting, with the origin of every
// character that comes out. No files, no imports, no other templates; everything is bounded.
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
  std::string date;  // what strftime_now() shows: 2024-07-26, or 2024-07-26T12:30:00
};

struct Rendering {
  struct Span {
    size_t begin, end;
  };
  Text text;
  std::vector<Span> generation;      // what {% generation %} marks, in bytes
  std::vector<int32_t> lost;         // sources that were printed without their origin
  std::vector<std::string> lost_by;  // what each lost it by: "upper, line 12"
};

class Template {
 public:
  /// Throws Error(kInput), with `where` and the line, for what is not valid or not supported.
  static Template parse(std::string_view source, const std::string& where,
                        const Options& options = {});
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;
  ~Template();

  /// `globals` is a dict (Value::from_json). Throws Refused where the template refuses the
  /// conversation, else Error(kInput). Thread-safe.
  Rendering render(const Value& globals, const RenderOptions& options = {}) const;
  bool marks_generation() const;

 private:
  Template(std::unique_ptr<const Program> program, std::string where);

  std::unique_ptr<const Program> program_;
  std::string where_;
};

}  // namespace lft::text::jinja
