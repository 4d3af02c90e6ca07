// Templates according to jinja2's documentation. peers/test_jinja.py compares with jinja2 itself.
#include <thread>

#include "tests/text/jinja_test.h"

namespace lft::jinja_language_test {
using namespace lft::jinja_test;
namespace {

TEST(JinjaLanguage, WhiteSpaceAtTags) {
  EXPECT_EQ(text_of("  {% if true %}\n  a\n  {% endif %}\nb\n"), "  a\nb");
  EXPECT_EQ(text_of("a {%- if true -%}  b  {%- endif %} c"), "ab c");
  EXPECT_EQ(text_of("  {%+ if true %}a{% endif +%}\nb"), "  a\nb");
  EXPECT_EQ(text_of("{# note #}\nx {#- note -#} y"), "xy");
  EXPECT_EQ(text_of("{% raw %}{{ x }}{% endraw %}"), "{{ x }}");
}

TEST(JinjaLanguage, ASetInALoopEndsWithIt) {
  EXPECT_EQ(
      text_of("{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = 5 %}{% endfor %}{{ x }}"),
      "111");
  EXPECT_EQ(text_of("{% set n = namespace(x=1) %}{% for i in [1, 2] %}{% set n.x = n.x + i %}"
                    "{% endfor %}{{ n.x }}"),
            "4");
  EXPECT_EQ(text_of("{% if true %}{% set x = 2 %}{% endif %}{{ x }}"), "2");
}

TEST(JinjaLanguage, LoopsKnowWhereTheyAre) {
  EXPECT_EQ(text_of("{% for c in 'abc' %}{{ loop.index }}{{ c }}{{ ',' if not loop.last }}"
                    "{% endfor %}"),
            "1a,2b,3c");
  EXPECT_EQ(text_of("{% for i in range(6) if i is odd %}{{ loop.index }}/{{ loop.length }}:{{ i }} "
                    "{% endfor %}"),
            "1/3:1 2/3:3 3/3:5 ");
  EXPECT_EQ(text_of("{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}"
                    "{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}"),
            "02");
  EXPECT_EQ(text_of("{% for x in [1, [2, [3]]] recursive %}{{ loop(x) if x is iterable else x }}"
                    "{% endfor %}"),
            "123");
}

TEST(JinjaLanguage, NumbersAndTextsAreThoseOfPython) {
  EXPECT_EQ(
      text_of("{{ -7 // 2 }} {{ -7 % 3 }} {{ 2 ** 3 ** 2 }} {{ 1 / 4 }} {{ 1e16 }} {{ 0.1 }}"),
      "-4 2 64 0.25 1e+16 0.1");
  EXPECT_EQ(text_of("{{ [1, 'a', \"it's\", none, true, 1.0, (2,)] }}"),
            "[1, 'a', \"it's\", None, True, 1.0, (2,)]");
  EXPECT_EQ(text_of("{{ 'é€x'[1] }}{{ 'é€x' | length }}{{ 'aé'[::-1] }}"), "€3éa");
  EXPECT_EQ(text_of("{{ 'ß'.upper() }}{{ 'ΑΣ'.lower() }}"), "SSας");
}

TEST(JinjaLanguage, AttributesComeBeforeItemsAndTheOtherWayRound) {
  const std::string d = R"({"d": {"items": 1, "x": 2}})";
  EXPECT_EQ(text_of("{{ d['items'] }}{{ d.x }}{{ d.items() | length }}{{ d.none_such }}", d),
            "122");
}

TEST(JinjaLanguage, MacrosTakeWhatTheyName) {
  EXPECT_EQ(text_of("{% macro m(a, b='d') %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}"
                    "{{ m(1) }}{{ m(1, 2, 3, z=4) }}"),
            "1d(){}12(3,){'z': 4}");
  EXPECT_EQ(text_of("{% macro m() %}<{{ caller(1) }}>{% endmacro %}{% call(x) m() %}{{ x }}!"
                    "{% endcall %}"),
            "<1!>");
}

TEST(JinjaLanguage, GenerationIsMarkedInBytes) {
  const Template chat = Template::parse(
      "{% for m in ms %}é{% if m.r %}{% generation %}{{ m.c }}.{% endgeneration %}{% else %}"
      "{{ m.c }}{% endif %}{% endfor %}",
      "t.jinja");
  EXPECT_TRUE(chat.marks_generation());
  const Rendering rendering =
      chat.render(globals_of(R"({"ms": [{"c": "q"}, {"r": 1, "c": "aé"}, {"r": 1, "c": ""}]})"));
  EXPECT_EQ(rendering.text.bytes(), "éqéaé.é.");
  ASSERT_EQ(rendering.generation.size(), 2u);
  EXPECT_EQ(rendering.generation[0].begin, 5u);
  EXPECT_EQ(rendering.generation[0].end, 9u);
  EXPECT_EQ(rendering.generation[1].begin, 11u);
  EXPECT_EQ(rendering.generation[1].end, 12u);
  EXPECT_FALSE(Template::parse("x", "t").marks_generation());
}

TEST(JinjaLanguage, TheDateIsTheOneGiven) {
  const Rendering rendering =
      render("{{ strftime_now('%d %b %Y') }}", "{}", {.limits = {}, .date = "2024-07-26"});
  EXPECT_EQ(rendering.text.bytes(), "26 Jul 2024");
}

TEST(JinjaLanguage, OneTemplateRendersInManyThreads) {
  const Template chat = Template::parse("{% for m in ms %}{{ m | upper }}é{% endfor %}", "t");
  const Value globals = globals_of(R"({"ms": ["a", "b"]})");
  std::vector<std::thread> threads;
  std::vector<int> same(4, 0);
  for (int& count : same) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) count += chat.render(globals).text.bytes() == "AéBé";
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(same, std::vector<int>(4, 200));
}

}  // namespace
}  // namespace lft::jinja_language_test
