#include "src/text/jinja/template.h"
#include "tests/fuzz/targets.h"

namespace lft::fuzz {
namespace jinja = lft::text::jinja;
namespace {

jinja::Value template_text(const char* bytes, int32_t source) {
  return jinja::Value::of(jinja::Text(bytes, source));
}

jinja::Value template_message(const char* role, const char* content, int32_t source) {
  auto dict = std::make_shared<jinja::DictObject>();
  dict->add(jinja::Value::of(jinja::Text("role")), template_text(role, source));
  dict->add(jinja::Value::of(jinja::Text("content")), template_text(content, source + 1));
  return jinja::make_dict(std::move(dict));
}

/// Inputs of chat templates: messages, tools, tokens.
jinja::Value template_values(jinja::Work& work) {
  auto globals = std::make_shared<jinja::DictObject>();
  globals->add(jinja::Value::of(jinja::Text("messages")),
               jinja::Value::list({template_message("system", "Be short.", 0),
                                   template_message("user", " Hé \"x\"\n", 2),
                                   template_message("assistant", "<b>yes</b> 1", 4)},
                                  work));
  globals->add(jinja::Value::of(jinja::Text("bos_token")), template_text("<s>", 6));
  globals->add(jinja::Value::of(jinja::Text("tools")),
               jinja::Value::list({template_message("function", "f", 7)}, work));
  globals->add(jinja::Value::of(jinja::Text("add_generation_prompt")), jinja::Value::of(true));
  return jinja::make_dict(std::move(globals));
}

void check_rendering(const jinja::Rendering& rendering) {
  size_t end = 0;
  for (const auto& run : rendering.text.runs()) {
    expect(end <= run.begin && run.begin < run.end && run.source >= 0 && run.source < 9,
           "runs are in order and of the caller");
    end = run.end;
  }
  expect(end <= rendering.text.size(), "runs lie within the text");
  for (const auto& span : rendering.generation)
    expect(span.begin <= span.end && span.end <= rendering.text.size(),
           "what the assistant says is within the text");
  expect(rendering.lost.size() == rendering.lost_by.size(), "what is lost has a name");
}

}  // namespace

/// Accepted if it parses. Rendering may be refused, but must not fail otherwise.
bool chat_template(std::string_view bytes) {
  return reads(ErrorKind::kInput, [&] {
    const jinja::Template chat = jinja::Template::parse(bytes, "template.jinja");
    jinja::RenderOptions options;
    options.limits = {.steps = 20'000, .output_bytes = 1 << 20, .memory_bytes = 8 << 20};
    options.date = "2024-07-26";
    jinja::Work work(options.limits, "conversation");
    const jinja::Value globals = template_values(work);
    reads(ErrorKind::kInput, [&] { check_rendering(chat.render(globals, options)); });
  });
}

}  // namespace lft::fuzz
