#include "src/text/jinja/template.h"

#include <algorithm>

#include "src/text/jinja/run/bind.h"
#include "src/text/jinja/run/machine.h"
#include "src/text/jinja/syntax/parser.h"

namespace lft::text::jinja {
namespace {

void list_lost(const Text& text, const Work& work, Rendering* out) {
  for (const LostRun& run : text.lost()) {
    if (std::find(out->lost.begin(), out->lost.end(), run.source) != out->lost.end()) continue;
    out->lost.push_back(run.source);
    out->lost_by.push_back(work.loser_name(run.by));
  }
}

}  // namespace

Template::Template(std::unique_ptr<const Program> program, std::string where)
    : program_(std::move(program)), where_(std::move(where)) {}
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;
Template::~Template() = default;

Template Template::parse(std::string_view source, const std::string& where,
                         const Options& options) {
  Work work(Limits{}, where);
  auto program = std::make_unique<Program>(parse_program(tokenize(source, options, work), work));
  bind_program(program.get(), work);
  return Template(std::move(program), where);
}

Rendering Template::render(const Value& globals, const RenderOptions& options) const {
  Work work(options.limits, where_, options.date);
  Machine machine(*program_, globals, work);
  TextBuilder out(work, options.limits.output_bytes);
  machine.run(&out);
  Rendering rendering;
  rendering.text = out.finish();
  for (const GenerationSpan& span : machine.generation())
    rendering.generation.push_back({span.begin, span.end});
  list_lost(rendering.text, work, &rendering);
  return rendering;
}

bool Template::marks_generation() const { return program_->marks_generation; }

}  // namespace lft::text::jinja
