// Renders templates for peers/test_jinja.py: JSON lines on stdin, one JSON line for each on stdout.
//   {"template": "...", "globals": {...}, "options": {"trim_blocks": true, ...}, "date":
//   "2024-07-26"}
//   {"text": "...", "runs": [[begin, end, source, offset], ...], "generation": [[begin, end], ...],
//    "lost": [[source, "upper, line 1"], ...]}
//   {"error": {"what": ..., "where": ..., "found": ..., "expected": ..., "next": ...},
//    "refused": whether raise_exception() was called}
// Sources are numbered in the order in which the values of `globals` occur there, an object or list
// before its elements.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "src/base/errors.h"
#include "src/text/jinja/template.h"

namespace {

using Json = nlohmann::ordered_json;
using namespace lft::text::jinja;

Options options_of(const Json& request) {
  Options options;
  const Json given = request.value("options", Json::object());
  options.trim_blocks = given.value("trim_blocks", options.trim_blocks);
  options.lstrip_blocks = given.value("lstrip_blocks", options.lstrip_blocks);
  options.keep_trailing_newline =
      given.value("keep_trailing_newline", options.keep_trailing_newline);
  return options;
}

/// Numbers the values of the object, but not the object itself.
Value globals_of(const Json& request) {
  auto globals = std::make_shared<DictObject>();
  const Json given = request.value("globals", Json::object());
  int32_t source = 0;
  for (const auto& [name, value] : given.items())
    globals->add(Value::of(Text(name)), Value::from_json(value, &source));
  return make_dict(std::move(globals));
}

Json answer_of(const Rendering& rendering) {
  Json answer = {{"text", rendering.text.bytes()},
                 {"runs", Json::array()},
                 {"generation", Json::array()},
                 {"lost", Json::array()}};
  for (const Run& run : rendering.text.runs())
    answer["runs"].push_back({run.begin, run.end, run.source, run.offset});
  for (const auto& span : rendering.generation)
    answer["generation"].push_back({span.begin, span.end});
  for (size_t i = 0; i < rendering.lost.size(); ++i)
    answer["lost"].push_back({rendering.lost[i], rendering.lost_by[i]});
  return answer;
}

Json answer_of(const lft::Error& error) {
  const lft::ErrorInfo& info = error.info();
  return {{"error",
           {{"what", info.what},
            {"where", info.where},
            {"found", info.found},
            {"expected", info.expected},
            {"next", info.next}}},
          {"refused", dynamic_cast<const Refused*>(&error) != nullptr}};
}

Json answer(const Json& request) {
  try {
    const Template chat_template = Template::parse(request.at("template").get<std::string>(),
                                                   "template.jinja", options_of(request));
    const RenderOptions options{.limits = {}, .date = request.value("date", "")};
    return answer_of(chat_template.render(globals_of(request), options));
  } catch (const lft::Error& error) {
    return answer_of(error);
  }
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    if (line.empty()) continue;
    std::cout << answer(Json::parse(line)).dump(-1, ' ', false, Json::error_handler_t::replace)
              << std::endl;
  }
  return 0;
}
