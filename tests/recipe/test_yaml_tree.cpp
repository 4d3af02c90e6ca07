// YAML that recipes refuse before any field is read: each with its line, at once, for any
// size.
#include <gtest/gtest.h>

#include <chrono>

#include "kernels/common/error.h"
#include "src/recipe/yaml_tree.h"

namespace lft::yaml_tree_test {
using namespace lft::recipe;
namespace {

std::string refusal(const std::string& text) {
  try {
    parse_yaml(text, "r.yaml");
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kUsage);
    EXPECT_EQ(e.info().where, "r.yaml");
    return e.what();
  }
  return "";
}

TEST(YamlTree, RefusesWhatHidesAMeaning) {
  const std::string written_out = " are not allowed in a recipe: write the value out";
  EXPECT_EQ(refusal("a: 1\nb: &x 1\n"), "line 2: anchors (&)" + written_out);
  EXPECT_EQ(refusal("a: &x {b: *x}\n"), "line 1: anchors (&)" + written_out);
  EXPECT_EQ(refusal("&x a: 1\n"), "line 1: anchors (&)" + written_out);
  EXPECT_EQ(refusal("a: *x\n"), "line 1: not valid YAML: the referenced anchor is not defined");
  EXPECT_EQ(refusal("a: 1\n<<: {b: 1}\n"),
            "line 2: merge keys (<<) are not allowed in a recipe: write the values out");
  EXPECT_EQ(refusal("a: 1\n---\nb: 2\n"),
            "line 2: a second document (---) is not allowed in a recipe");
  EXPECT_EQ(refusal("a: 1\n...\nb: 2\n"),
            "line 3: a second document (---) is not allowed in a recipe");
  EXPECT_EQ(refusal("%YAML 1.2\n---\na: 1\n"),
            "line 1: directives (%) are not allowed in a recipe");
  EXPECT_EQ(refusal("a: 1\n%x\n"), "line 2: directives (%) are not allowed in a recipe");
  EXPECT_EQ(refusal("? [a]\n: 1\n"), "line 1: a key must be a plain name");
  EXPECT_EQ(refusal("a:\n  - b:\n      - [c, [d]]\n"), "line 3: nested deeper than 4 levels");
  EXPECT_EQ(refusal(std::string("a: 1\nb: \0\n", 10)), "line 2: the recipe contains a NUL byte");
  EXPECT_EQ(refusal("\xef\xbb\xbf"
                    "a: 1\n"),
            "line 1: the recipe starts with a byte-order mark: save it as plain UTF-8");
  EXPECT_EQ(refusal("\xff\xfe"
                    "a"),
            "the recipe is not valid UTF-8");
  EXPECT_EQ(refusal("a: \xc0\xaf\n"), "the recipe is not valid UTF-8");
  EXPECT_EQ(refusal("a: \xed\xa0\x80\n"), "the recipe is not valid UTF-8");
  EXPECT_EQ(refusal("a: 1\nb: [1, 2\n").substr(0, 24), "line 3: not valid YAML: ");
  EXPECT_EQ(refusal("a: 1\n\tb: 2\n").substr(0, 24), "line 2: not valid YAML: ");
}

TEST(YamlTree, RefusesEveryTag) {
  for (const char* text : {"a: !!str 3\n", "a: ! 3\n", "a: ! '3'\n", "a: !!map {}\n", "a: ![b]\n",
                           "a: !!python/object/apply:os.system [ls]\n", "a: !<tag:x> 3\n",
                           "!!map {a: 1}\n", "\xc3\xa9: \xc3\xa9\r\na: ! 3\r\n", "a: !!null\n"}) {
    EXPECT_NE(refusal(text).find("tags (!) are not allowed"), std::string::npos)
        << text << refusal(text);
  }
}

TEST(YamlTree, RefusesBombsAtOnce) {
  const auto repeat = [](const std::string& unit, size_t bytes) {
    std::string text;
    while (text.size() < bytes) text += unit;
    return text.substr(0, bytes);
  };
  std::string laughs = "a: &a [x, x, x]\n";
  for (char c = 'b'; c < 'z'; ++c)
    laughs += std::string(1, c) + ": &" + c + " [*" + char(c - 1) + ", *" + char(c - 1) + "]\n";
  std::vector<std::string> corpus = {laughs, std::string(1 << 20, 'a'), std::string(8 << 20, '\n'),
                                     "a: &a\n  b: *a\n"};
  for (const char* unit : {"[", "{", "- ", "a: ", "? ", "[a, ", "{a: ", "!", "&", "*", "a: \"",
                           "\"", "a: '", "%a\n", "a: [a,\n"}) {
    corpus.push_back(repeat(unit, 64 << 10));
  }
  for (const std::string& text : corpus) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_NE(refusal(text), "") << text.substr(0, 40);
    // A quarter of a second is ten times the slowest case; a quadratic reader would need
    // minutes.
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(250))
        << text.substr(0, 40);
  }
}

TEST(YamlTree, KeepsLinesAndDuplicates) {
  const YamlNode root = parse_yaml("---\n# c\na: {x: 1,\n  y: '2'}\nb:\nb: [c,\n  d]\n", "r.yaml");
  ASSERT_EQ(root.entries.size(), 3u);
  EXPECT_EQ(root.entries[0].value.entries[1].line, 4);
  EXPECT_FALSE(root.entries[0].value.entries[0].value.quoted);
  EXPECT_TRUE(root.entries[0].value.entries[1].value.quoted);
  EXPECT_EQ(root.entries[1].value.kind, YamlNode::Kind::kNull);
  EXPECT_EQ(root.entries[1].value.place, "line 5");
  EXPECT_EQ(root.entries[2].value.items[1].line, 7);
}

}  // namespace
}  // namespace lft::yaml_tree_test
