#include "src/text/jinja/template.h"
#include "tests/fuzz/targets.h"

namespace lft::fuzz {
using namespace lft::text::jinja;
namespace {

Value text(const char* bytes, int32_t source) { return Value::of(Text(bytes, source)); }

Value message(const char* role, const char* content, int32_t source) {
  auto dict = std::make_shared<DictObject>();
  dict->add(Value::of(Text("role")), text(role, source));
  dict->add(Value::of(Text("content")), text(content, source + 1));
  return make_dict(std::move(dict));
}

/// What chat templates are given: messages, tools, tokens.
Value conversation(Work& work) {
  auto globals = std::make_shared<DictObject>();
  globals->add(Value::of(Text("messages")),
               Value::list({message("system", "Be short.", 0), message("user", " Hé \"x\"\n", 2),
                            message("assistant", "<b>yes</b> 1", 4)},
                           work));
  globals->add(Value::of(Text("bos_token")), text("<s>", 6));
  globals->add(Value::of(Text("tools")), Value::list({message("function", "f", 7)}, work));
  globals->add(Value::of(Text("add_generation_prompt")), Value::of(true));
  return make_dict(std::move(globals));
}

void check(const Rendering& rendering) {
  size_t end = 0;
  for (const Run& run : rendering.text.runs()) {
    expect(end <= run.begin && run.begin < run.end && run.source >= 0 && run.source < 9,
           "runs are in order and of the caller");
    end = run.end;
  }
  expect(end <= rendering.text.size(), "runs lie within the text");
  for (const auto& span : rendering.generation)
    expect(span.begin <= span.end && span.end <= rendering.text.size(),
           "what the assistant says lies within the text");
  expect(rendering.lost.size() == rendering.lost_by.size(), "what is lost has a name");
}

}  // namespace

/// Taken is what can be parsed. Rendering it may refuse, but nothing worse.
bool chat_template(std::string_view bytes) {
  return reads(ErrorKind::kInput, [&] {
    const Template chat = Template::parse(bytes, "template.jinja");
    RenderOptions options;
    options.limits = {.steps = 20'000, .output_bytes = 1 << 20, .memory_bytes = 8 << 20};
    options.date = "2024-07-26";
    Work work(options.limits, "conversation");
    const Value globals = conversation(work);
    reads(ErrorKind::kInput, [&] { check(chat.render(globals, options)); });
  });
}

}  // namespace lft::fuzz
