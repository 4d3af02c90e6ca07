// Shared helpers of the chat template tests: rendering a line of Jinja with values given as JSON.
#pragma once
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/text/jinja/template.h"

namespace lft::jinja_test {
using namespace lft::text::jinja;

/// The values of a JSON object, numbered from 0 in their order; the object itself has no number.
inline Value globals_of(const std::string& json) {
  auto globals = std::make_shared<DictObject>();
  int32_t source = 0;
  const auto parsed = nlohmann::ordered_json::parse(json);
  for (const auto& [name, value] : parsed.items())
    globals->add(Value::of(Text(name)), Value::from_json(value, &source));
  return make_dict(std::move(globals));
}

inline Rendering render(const std::string& source, const std::string& globals = "{}",
                        const RenderOptions& options = {}) {
  return Template::parse(source, "t.jinja").render(globals_of(globals), options);
}

inline std::string text_of(const std::string& source, const std::string& globals = "{}") {
  return std::string(render(source, globals).text.bytes());
}

/// "what | where | found" of the refusal, "" if there is none.
inline std::string refusal(const std::string& source, const std::string& globals = "{}",
                           const RenderOptions& options = {}) {
  try {
    render(source, globals, options);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.info().what + " | " + error.info().where + " | " + error.info().found;
  }
}

/// Every run as "source+offset:its characters".
inline std::vector<std::string> origins(const std::string& source, const std::string& globals) {
  const Rendering rendering = render(source, globals);
  std::vector<std::string> out;
  for (const Run& run : rendering.text.runs()) {
    out.push_back(std::to_string(run.source) + "+" + std::to_string(run.offset) + ":" +
                  std::string(rendering.text.bytes().substr(run.begin, run.end - run.begin)));
  }
  return out;
}

}  // namespace lft::jinja_test
