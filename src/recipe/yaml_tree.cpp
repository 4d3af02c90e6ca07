#include "src/recipe/yaml_tree.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <sstream>

#include "kernels/common/error.h"
#include "src/io/json.h"

namespace lft::recipe {
namespace {

// 64 KiB is 20 times the longest recipe; yaml-cpp needs 0.3 ms per KiB of brackets.
constexpr size_t kMaxBytes = 64 << 10;
constexpr size_t kMaxDepth = 4;

[[noreturn]] void bad_yaml(const std::string& where, int line, const std::string& what) {
  const std::string place = line > 0 ? "line " + std::to_string(line) + ": " : "";
  refuse(ErrorKind::kUsage, place + what, where, {}, {},
         "correct it there; lft recipe cat rows-200 prints a recipe to compare with");
}

bool is_utf8(const std::string& text) {
  try {
    io::Json(text).dump();  // which throws for invalid UTF-8
    return true;
  } catch (const io::Json::exception&) {
    return false;
  }
}

void check_text(const std::string& text, const std::string& where) {
  if (text.size() > kMaxBytes)
    bad_yaml(where, 0,
             "the recipe has " + std::to_string(text.size()) + " bytes, more than " +
                 std::to_string(kMaxBytes));
  if (text.compare(0, 3, "\xef\xbb\xbf") == 0)
    bad_yaml(where, 1, "the recipe starts with a byte-order mark: save it as plain UTF-8");
  const size_t nul = text.find('\0');
  if (nul != std::string::npos)
    bad_yaml(where, 1 + static_cast<int>(std::count(text.begin(), text.begin() + nul, '\n')),
             "the recipe contains a NUL byte");
  if (!is_utf8(text)) bad_yaml(where, 0, "the recipe is not valid UTF-8");
  const size_t directive = text[0] == '%' ? 0 : text.find("\n%");
  if (directive != std::string::npos) {
    bad_yaml(where,
             1 + static_cast<int>(std::count(text.begin(), text.begin() + directive + 1, '\n')),
             "directives (%) are not allowed in a recipe");
  }
}

/// Builds the tree from yaml-cpp's events, so that errors are found before any expansion.
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(const std::string& text, const std::string& where) : text_(text), where_(where) {}
  YamlNode take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1)
      bad_yaml(where_, mark.line + 1, "a second document (---) is not allowed in a recipe");
  }
  void OnDocumentEnd() override {}
  void OnAnchor(const YAML::Mark& mark, const std::string&) override {
    bad_yaml(where_, mark.line + 1, "anchors (&) are not allowed in a recipe: write the value out");
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    bad_yaml(where_, mark.line + 1, "aliases (*) are not allowed in a recipe: write the value out");
  }
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override {
    YamlNode node = make(YamlNode::Kind::kNull, mark);
    if (expecting_value())
      node.line =
          open_.back()->entries.back().line;  // yaml-cpp marks the token after an empty value
    node.place = "line " + std::to_string(node.line);
    add(std::move(node), mark, "");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                const std::string& value) override {
    const size_t at = static_cast<size_t>(std::max(mark.pos, 0));
    const bool explicit_mark = tag == "!" && at < text_.size() && text_[at] == '!';
    if ((tag != "?" && tag != "!") || explicit_mark) refuse_tag(mark);
    YamlNode node = make(YamlNode::Kind::kScalar, mark);
    node.text = value;
    node.quoted = tag == "!";
    add(std::move(node), mark, value);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    if (tag != "?") refuse_tag(mark);
    enter(YamlNode::Kind::kList, mark);
  }
  void OnSequenceEnd() override { leave(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    if (tag != "?") refuse_tag(mark);
    enter(YamlNode::Kind::kMap, mark);
  }
  void OnMapEnd() override { leave(); }

 private:
  static YamlNode make(YamlNode::Kind kind, const YAML::Mark& mark) {
    YamlNode node;
    node.kind = kind;
    node.line = mark.line + 1;
    node.place = "line " + std::to_string(node.line);
    return node;
  }
  [[noreturn]] void refuse_tag(const YAML::Mark& mark) {
    bad_yaml(where_, mark.line + 1, "tags (!) are not allowed in a recipe");
  }
  bool in_map() const { return !open_.empty() && open_.back()->kind == YamlNode::Kind::kMap; }
  bool expecting_value() const { return in_map() && has_key_.back(); }

  /// Adds a finished or just opened node as root, list item, map key or map value. Returns its
  /// final address (null for a key).
  YamlNode* add(YamlNode node, const YAML::Mark& mark, const std::string& key) {
    if (open_.empty()) return &(root_ = std::move(node));
    YamlNode& parent = *open_.back();
    if (parent.kind == YamlNode::Kind::kList) return &parent.items.emplace_back(std::move(node));
    if (has_key_.back()) {
      has_key_.back() = false;
      return &(parent.entries.back().value = std::move(node));
    }
    if (node.kind != YamlNode::Kind::kScalar)
      bad_yaml(where_, mark.line + 1, "a key must be a plain name");
    if (key == "<<")
      bad_yaml(where_, mark.line + 1,
               "merge keys (<<) are not allowed in a recipe: write the values out");
    parent.entries.push_back({key, node.line, node.place, {}});
    has_key_.back() = true;
    return nullptr;
  }
  void enter(YamlNode::Kind kind, const YAML::Mark& mark) {
    if (open_.size() >= kMaxDepth)
      bad_yaml(where_, mark.line + 1,
               "nested deeper than " + std::to_string(kMaxDepth) + " levels");
    open_.push_back(add(make(kind, mark), mark, ""));
    has_key_.push_back(false);
  }
  void leave() {
    open_.pop_back();
    has_key_.pop_back();
  }

  const std::string& text_;
  const std::string& where_;
  int documents_ = 0;
  YamlNode root_;
  std::vector<YamlNode*>
      open_;  // a parent gains no sibling while it is open, so the pointers stay valid
  std::vector<bool> has_key_;  // of open_: the next node is the value of the last key
};

}  // namespace

YamlNode parse_yaml(const std::string& text, const std::string& where) {
  check_text(text, where);
  TreeBuilder builder(text, where);
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& e) {
    bad_yaml(where, e.mark.is_null() ? 0 : e.mark.line + 1, "not valid YAML: " + e.msg);
  }
  return builder.take();
}

}  // namespace lft::recipe
