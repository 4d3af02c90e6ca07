// The origin of the characters of a rendered template.
#include "tests/text/jinja_test.h"

namespace lft::jinja_origins_test {
using namespace lft::jinja_test;
namespace {

using Origins = std::vector<std::string>;
const std::string kTwo = R"({"a": "hello world", "b": "x"})";

TEST(JinjaOrigins, WhatTheTemplateWritesHasNone) {
  EXPECT_EQ(origins("user: {{ 'hello world' }}", kTwo), Origins());
  EXPECT_EQ(origins("user: {{ a }}!", kTwo), Origins{"0+0:hello world"});
}

TEST(JinjaOrigins, TheyAreThoseOfTheCopiedCharacters) {
  EXPECT_EQ(origins("{{ a + b ~ a }}", kTwo),
            (Origins{"0+0:hello world", "1+0:x", "0+0:hello world"}));
  EXPECT_EQ(origins("{{ a[6:] }}{{ a[0] }}{{ a[-1] }}", kTwo),
            (Origins{"0+6:world", "0+0:h", "0+10:d"}));
  EXPECT_EQ(origins("{{ a[::5] }}", kTwo), (Origins{"0+0:h", "0+5: ", "0+10:d"}));
  EXPECT_EQ(origins("{{ a | trim }}|{{ a.strip('hd') }}", R"({"a": "  hid "})"),
            (Origins{"0+2:hid", "0+0:  hid "}));
  EXPECT_EQ(origins("{{ a.split(' ')[1] }}", kTwo), Origins{"0+6:world"});
  EXPECT_EQ(origins("{{ a.split() | join('-') }}", kTwo), (Origins{"0+0:hello", "0+6:world"}));
  EXPECT_EQ(origins("{{ a | replace('o', b) }}", kTwo),
            (Origins{"0+0:hell", "1+0:x", "0+5: w", "1+0:x", "0+8:rld"}));
  EXPECT_EQ(origins("{% for c in b %}{{ c }}{% endfor %}", R"({"b": "né"})"), Origins{"0+0:né"});
  EXPECT_EQ(origins("{{ a | first }}{{ a | last }}{{ b | reverse }}", R"({"a": "xyz", "b": "né"})"),
            (Origins{"0+0:x", "0+2:z", "1+1:é", "1+0:n"}));
  EXPECT_EQ(origins("{{ a | indent(1) }}", R"({"a": "p\nq"})"), (Origins{"0+0:p", "0+2:q"}));
  EXPECT_EQ(origins("{{ a | truncate(5) }}", R"({"a": "one two three"})"), Origins{"0+0:on"});
}

TEST(JinjaOrigins, FormatsKeepThem) {
  EXPECT_EQ(origins("{{ '<%s|%5s>' % (a, b) }}", kTwo), (Origins{"0+0:hello world", "1+0:x"}));
  EXPECT_EQ(origins("{{ '<{}|{b:>3}>'.format(a, b=b) }}", kTwo),
            (Origins{"0+0:hello world", "1+0:x"}));
  EXPECT_EQ(origins("{{ '%.3s' | format(a) }}", kTwo), Origins{"0+0:hel"});
}

TEST(JinjaOrigins, SetsMacrosAndBlocksKeepThem) {
  EXPECT_EQ(origins("{% set y %}[{{ b }}]{% endset %}{{ y }}", kTwo), Origins{"1+0:x"});
  EXPECT_EQ(origins("{% macro m(t) %}<{{ t }}>{% endmacro %}{{ m(b) }}", kTwo), Origins{"1+0:x"});
  EXPECT_EQ(origins("{% filter trim %} {{ b }} {% endfilter %}", kTwo), Origins{"1+0:x"});
}

TEST(JinjaOrigins, AnEscapedCharacterOfJsonIsThatOfItsSource) {
  EXPECT_EQ(origins("{{ a | tojson }}", R"({"a": "p\n\"q"})"),
            (Origins{"0+0:p", "0+1:\\n", "0+2:\\\"", "0+3:q"}));
}

TEST(JinjaOrigins, APrintedContainerIsOneSourceButForItsTexts) {
  // 0 is the object, 1 the text, 2 the list, 3 and 4 its elements
  const std::string call = R"({"c": {"t": "Rome", "n": [1, "x"]}})";
  EXPECT_EQ(origins("{{ c | tojson }}", call),
            (Origins{"0+0:{\"t\": \"", "1+0:Rome", "0+0:\", \"n\": [1, \"", "4+0:x", "0+0:\"]}"}));
  EXPECT_EQ(origins("{{ c }}", call),
            (Origins{"0+0:{'t': '", "1+0:Rome", "0+0:', 'n': [1, '", "4+0:x", "0+0:']}"}));
  EXPECT_EQ(origins("{{ c.n[0] }}", call), Origins{"3+0:1"});
  EXPECT_EQ(origins("{{ [c.n[0], 2] | tojson }}", call), Origins{"3+0:1"});
}

TEST(JinjaOrigins, WhatRewritesCharactersLosesThemAndIsNamed) {
  const Rendering rendering = render("\n{{ a | upper }}{{ b }}", kTwo);
  EXPECT_EQ(rendering.lost, std::vector<int32_t>{0});
  EXPECT_EQ(rendering.lost_by, std::vector<std::string>{"upper, line 2"});
  EXPECT_EQ(origins("{{ a | upper }}{{ b }}", kTwo), Origins{"1+0:x"});
}

TEST(JinjaOrigins, OnlyWhatIsPrintedIsLost) {
  EXPECT_TRUE(render("{% if a.upper() == 'X' %}{% endif %}{{ a }}", kTwo).lost.empty());
  EXPECT_TRUE(render("{{ (a.title() ~ b)[-1] }}", kTwo).lost.empty());
  EXPECT_EQ(render("{{ (a.title() ~ b)[:3] }}", kTwo).lost, std::vector<int32_t>{0});
}

TEST(JinjaOrigins, AFilterThatChangesNothingLosesNothing) {
  EXPECT_EQ(origins("{{ a | lower }}{{ b | escape }}", kTwo),
            (Origins{"0+0:hello world", "1+0:x"}));
}

TEST(JinjaOrigins, RunsAreInOrderAndWithinTheText) {
  const Rendering rendering =
      render("{% for m in ms %}{{ m.r }}: {{ m.c | trim }}{% endfor %}",
             R"({"ms": [{"r": "user", "c": " hi "}, {"r": "bot", "c": "yo"}]})");
  uint32_t end = 0;
  for (const auto& run : rendering.text.runs()) {
    EXPECT_LE(end, run.begin);
    EXPECT_LT(run.begin, run.end);
    end = run.end;
  }
  EXPECT_LE(end, rendering.text.size());
}

}  // namespace
}  // namespace lft::jinja_origins_test
