// Refused templates: errors with their lines, names that are not supported, and limits.
#include <chrono>

#include "tests/text/jinja_test.h"

namespace lft::jinja_refusals_test {
using namespace lft::jinja_test;
namespace {

void expect_refusal(const std::string& source, const std::string& part) {
  const std::string found = refusal(source);
  EXPECT_NE(found.find(part), std::string::npos) << source << "\n" << found;
}

TEST(JinjaRefusals, ErrorsHaveTheLineOfTheTemplate) {
  expect_refusal("a\n{{ b.c }}", "undefined | t.jinja:2 | b");
  expect_refusal("\n\n{% for x in y.z %}\n{% endfor %}", "t.jinja:3");
  expect_refusal("{% if true %}\n\n", "t.jinja:2 | the end of the template");
  expect_refusal("{{ 1 +\n\n }}", "t.jinja:3 | }}");
  expect_refusal("{% macro m() %}\n{{ 1 / 0 }}\n{% endmacro %}\n{{ m() }}",
                 "divides by zero | t.jinja:2");
}

TEST(JinjaRefusals, RaiseExceptionRefusesTheConversation) {
  try {
    render("\n{{ raise_exception('roles must alternate') }}");
    FAIL();
  } catch (const Refused& error) {
    EXPECT_EQ(error.info().found, "roles must alternate");
    EXPECT_EQ(error.info().where, "t.jinja:2");
  }
}

TEST(JinjaRefusals, WhatIsUnknownIsRefusedWhenTheTemplateIsRead) {
  EXPECT_THROW(Template::parse("{{ x | no_such }}", "t"), Error);
  EXPECT_THROW(Template::parse("{{ x is no_such }}", "t"), Error);
  EXPECT_THROW(Template::parse("{% no_such %}", "t"), Error);
  expect_refusal("{{ x | no_such }}", "a filter that there is not | t.jinja:1 | \"no_such\"");
}

TEST(JinjaRefusals, AnUnknownFilterInAConditionIsRefusedWhenItIsReached) {
  EXPECT_EQ(text_of("{% if false %}{{ x | no_such }}{% endif %}ok"), "ok");
  expect_refusal("{% if true %}{{ x | no_such }}{% endif %}", "\"no_such\"");
}

TEST(JinjaRefusals, OtherTemplatesAndBlocksAreRefusedByName) {
  for (const char* name : {"block", "extends", "include", "import", "from", "autoescape", "do"})
    expect_refusal("{% " + std::string(name) + " x %}", "\"" + std::string(name) + "\"");
  expect_refusal("{{ lipsum() }}", "\"lipsum\"");
  expect_refusal("{{ [1] | random }}", "\"random\"");
  expect_refusal("{{ 'x'.encode() }}", "\"encode\"");
  expect_refusal("{{ ('a' | safe) + '<' }}", "\"safe\"");
}

TEST(JinjaRefusals, ValuesAreNotChanged) {
  expect_refusal("{% set x = [1] %}{{ x.append(2) }}", "changes a list or a dict");
  expect_refusal("{% set x = {} %}{{ x.update(a=1) }}", "changes a list or a dict");
  EXPECT_EQ(text_of("{{ [1].append is defined }}"), "False");
}

TEST(JinjaRefusals, InternalsOfPythonAreUndefined) {
  EXPECT_EQ(text_of("{{ ''.__class__ }}{{ x.__init__ if x is defined }}"), "");
  expect_refusal("{{ ''.__class__.__mro__ }}", "undefined");
  expect_refusal("{{ ''['__class__']() }}", "calls what is undefined");
}

TEST(JinjaRefusals, TypesThatDoNotGoTogether) {
  expect_refusal("{{ 1 + 'a' }}", "int + str");
  expect_refusal("{{ 'a' < 1 }}", "str < int");
  expect_refusal("{{ none | length }}", "NoneType");
  expect_refusal("{{ 9223372036854775807 + 1 }}", "more than 64 bits");
  expect_refusal("{{ 9223372036854775808 }}", "more than 64 bits");
}

/// Refused within a second, for every template.
TEST(JinjaRefusals, WhatTakesTooMuch) {
  const std::vector<std::string> hostile = {
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      "{{ 'a' * 10 ** 9 }}",
      "{{ [0] * 10 ** 9 }}",
      "{{ range(10 ** 9) }}",
      "{{ '%1000000000d' % 1 }}",
      "{{ '%*d' % (10 ** 18, 1) }}",
      "{{ '{:>1000000000}'.format(1) }}",
      "{{ '{:.1000000f}'.format(1.5) }}",
      "{{ 'a'.center(10 ** 9) }}",
      "{{ 'a'.ljust(10 ** 12) }}",
      "{{ 'a'.zfill(10 ** 9) }}",
      "{{ 'a' | indent(10 ** 9) }}",
      "{{ 9 ** 9 ** 9 }}",
      "{{ [1] | slice(10 ** 10) | list }}",
      "{{ [1] | batch(10 ** 12, 0) | list }}",
      "{{ [[[1]]] | tojson(indent=10 ** 9) }}",
      "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
      "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
      "{% set n = namespace(x='a') %}{% for i in range(99) %}{% set n.x = n.x.replace('a', 'aaaa') "
      "%}{% endfor %}",
      "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}"
      "{{ n.x }}",
      "{% set n = namespace(x=[1]) %}{% for i in range(999) %}{% set n.x = [n.x] %}{% endfor %}",
      "{% set s = 'a' * 9000000 %}{{ s.rfind('b' ~ 'a' * 4000000) }}",
      "{% set n = namespace() %}{% set n.n = n %}{{ n }}",
  };
  for (const std::string& source : hostile) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_NE(refusal(source), "") << source;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10)) << source;
  }
}

std::string repeated(const std::string& text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

TEST(JinjaRefusals, TemplatesThatAreNestedTooDeeply) {
  constexpr int kDeep = 20000;
  for (const std::string& source :
       {"{{ " + repeated("(", kDeep) + "1" + repeated(")", kDeep) + " }}",
        "{{ " + repeated("[", kDeep) + repeated("]", kDeep) + " }}",
        "{{ " + repeated("not ", kDeep) + "1 }}", "{{ " + repeated("-", kDeep) + "1 }}",
        "{{ 1" + repeated("+1", kDeep) + " }}", "{{ x" + repeated(".a", kDeep) + " }}",
        "{{ x" + repeated("|abs", kDeep) + " }}", "{{ x" + repeated("()", kDeep) + " }}",
        "{{ 1" + repeated(" if 1 else 1", kDeep) + " }}",
        repeated("{% if 1 %}", kDeep) + repeated("{% endif %}", kDeep)})
    EXPECT_NE(refusal(source), "") << source.substr(0, 40);
  EXPECT_NE(refusal(std::string(2 << 20, 'x')), "");
}

TEST(JinjaRefusals, CyclesOfValuesAreFreed) {
  EXPECT_EQ(text_of("{% set n = namespace() %}{% set n.me = n %}"
                    "{% for i in range(20000) %}{% set n.x = namespace(p=n.x) %}{% endfor %}"
                    "{% for i in [1] %}{{ loop.changed(loop) }}{% endfor %}"),
            "True");
}

TEST(JinjaRefusals, TheLimitsAreThoseGiven) {
  RenderOptions options;
  options.limits.output_bytes = 10;
  EXPECT_EQ(refusal("0123456789", "{}", options), "");
  EXPECT_NE(refusal("0123456789a", "{}", options), "");
  options = {};
  options.limits.steps = 100;
  EXPECT_NE(refusal("{% for i in range(100) %}{{ i }}{% endfor %}", "{}", options), "");
}

TEST(JinjaRefusals, NoUtf8) { expect_refusal("a\xff", "not UTF-8"); }

}  // namespace
}  // namespace lft::jinja_refusals_test
