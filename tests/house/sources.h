// The source files as read by the house tests: their names, lines, includes, and the types and
// functions that they define. A simple reader, not a compiler: it removes comments,
// strings and preprocessor lines, and counts braces.
#pragma once
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace house {

namespace fs = std::filesystem;

inline std::string slurp(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

inline bool is_source(const fs::path& path) {
  const std::string extension = path.extension();
  return extension == ".h" || extension == ".cpp" || extension == ".cu" || extension == ".cuh";
}

/// Files below `folders` accepted by `takes`, as paths relative to `root`, sorted. A missing
/// folder has none.
template <typename Takes>
std::vector<std::string> files_below(const fs::path& root, const std::vector<std::string>& folders,
                                     const Takes& takes) {
  std::vector<std::string> files;
  for (const std::string& folder : folders) {
    if (!fs::is_directory(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string file = fs::relative(entry.path(), root);
      if (entry.is_regular_file() && takes(file)) files.push_back(file);
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

inline std::vector<std::string> sources_below(const fs::path& root,
                                              const std::vector<std::string>& folders) {
  return files_below(root, folders, is_source);
}

inline std::string folder_of(const std::string& file) { return fs::path(file).parent_path(); }

struct Include {
  std::string file;    // relative to the repository
  std::string target;  // the text between the quotes or angle brackets
  bool quoted = false;
};

inline std::vector<Include> includes_below(const fs::path& root,
                                           const std::vector<std::string>& folders) {
  std::vector<Include> out;
  for (const std::string& file : sources_below(root, folders)) {
    for (const std::string& line : lines_of(slurp(root / file))) {
      if (!line.starts_with("#include ") || line.size() < 12) continue;
      const size_t end = line.find_first_of("\">", 10);
      out.push_back({file, line.substr(10, end - 10), line[9] == '"'});
    }
  }
  return out;
}

/// A source without comments, strings, characters and preprocessor lines.
inline std::string plain_code(const std::string& text) {
  std::string code;
  const auto is_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  bool line_is_empty = true;  // so far
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (text.compare(i, 2, "//") == 0) {
      i = std::min(text.find('\n', i), text.size());
    } else if (text.compare(i, 2, "/*") == 0) {
      i = std::min(text.find("*/", i + 2), text.size() - 2) + 2;
      code += ' ';
    } else if (c == '#' && line_is_empty) {
      while (i < text.size() && text[i] != '\n') i += text[i] == '\\' ? 2 : 1;
    } else if (text.compare(i, 2, "R\"") == 0 &&
               (i == 0 || !is_word(text[i - 1]) || text[i - 1] == '8' || text[i - 1] == 'u')) {
      const size_t open = std::min(text.find('(', i), text.size());
      const std::string close = ")" + text.substr(i + 2, open - i - 2) + "\"";
      i = std::min(text.find(close, open), text.size() - close.size()) + close.size();
      code += "0";
    } else if (c == '"' || (c == '\'' && (i == 0 || !is_word(text[i - 1])))) {
      for (++i; i < text.size() && text[i] != c && text[i] != '\n';) i += text[i] == '\\' ? 2 : 1;
      ++i;
      code += "0";
    } else {
      if (c == '\n')
        line_is_empty = true;
      else if (c != ' ' && c != '\t')
        line_is_empty = false;
      code += c;
      ++i;
      continue;
    }
    line_is_empty = line_is_empty && i < text.size() && text[i] == '\n';
  }
  return code;
}

/// Words, "::" and single punctuation marks.
inline std::vector<std::string> code_tokens(const std::string& code) {
  std::vector<std::string> tokens;
  for (size_t i = 0; i < code.size();) {
    const auto is_word = [&](size_t at) {
      return at < code.size() &&
             (std::isalnum(static_cast<unsigned char>(code[at])) != 0 || code[at] == '_');
    };
    size_t length = 1;
    if (std::isspace(static_cast<unsigned char>(code[i])) != 0) {
      ++i;
      continue;
    }
    if (is_word(i)) {
      while (is_word(i + length)) ++length;
    } else if (code.compare(i, 2, "::") == 0) {
      length = 2;
    }
    tokens.push_back(code.substr(i, length));
    i += length;
  }
  return tokens;
}

/// The functions that a source declares or defines at namespace scope, by qualified name (the class
/// included), outside of anonymous namespaces.
struct Functions {
  std::vector<std::string> declared, defined;
};

class FunctionReader {
 public:
  explicit FunctionReader(const std::string& text) : tokens_(code_tokens(plain_code(text))) {
    while (at_ < tokens_.size()) read_one();
  }
  const Functions& functions() const { return functions_; }

 private:
  const std::string& token(size_t at) const {
    static const std::string none;
    return at < tokens_.size() ? tokens_[at] : none;
  }
  size_t past(size_t at, const std::string& open, const std::string& close) const {
    int depth = 0;
    for (; at < tokens_.size(); ++at) {
      depth += tokens_[at] == open ? 1 : tokens_[at] == close ? -1 : 0;
      if (depth == 0) return at + 1;
    }
    return at;
  }
  static bool is_name(const std::string& text) {
    return !text.empty() &&
           (std::isalpha(static_cast<unsigned char>(text[0])) != 0 || text[0] == '_');
  }

  void read_one() {
    const std::string& word = token(at_);
    if (word == "namespace") return open_scope("");
    if (word == "struct" || word == "class") return open_type();
    if (word == "enum") {
      at_ = statement_end(at_);
    } else if (word == "template" && token(at_ + 1) == "<") {
      at_ = past(at_ + 1, "<", ">");
    } else if (word == "operator") {  // not followed
      at_ = statement_end(at_);
    } else if (word == "(") {
      read_function();
    } else if (word == "=") {
      at_ = statement_end(at_);
    } else if (word == "{") {
      at_ = past(at_, "{", "}");
    } else {
      if (word == "}" && !scopes_.empty()) scopes_.pop_back();
      ++at_;
    }
  }

  /// The position after the statement's ";" or body.
  size_t statement_end(size_t at) const {
    while (at < tokens_.size() && token(at) != ";" && token(at) != "{")
      at = token(at) == "(" ? past(at, "(", ")") : at + 1;
    return token(at) == "{" ? past(at, "{", "}") : at + 1;
  }

  void open_scope(std::string name) {
    size_t at = at_ + 1;
    for (; at < tokens_.size() && token(at) != "{" && token(at) != ";" && token(at) != "="; ++at)
      name += token(at);
    if (token(at) == "{") scopes_.push_back(name.empty() ? "(anonymous)" : name);
    at_ = token(at) == "{" ? at + 1 : statement_end(at);
  }

  /// A class is a scope; a declaration, or a variable or a result of a named struct, is not.
  void open_type() {
    size_t at = at_ + 1;
    std::string name;
    while (is_name(token(at)) || token(at) == "::") {
      if (is_name(token(at)) && is_name(token(at - 1)) && !name.empty()) break;
      name += token(at++);
    }
    if (token(at) == "<") at = past(at, "<", ">");
    if (token(at) == "final") ++at;
    if (token(at) == ":") {
      while (at < tokens_.size() && token(at) != "{" && token(at) != ";") ++at;
    }
    if (token(at) == "{" && !name.empty()) {
      scopes_.push_back(name);
      ++at;
    }
    at_ = std::max(at, at_ + 1);
  }

  void read_function() {
    std::string name;
    for (size_t at = at_; at-- > 0;) {
      const bool joins = !name.empty() && is_name(token(at)) && is_name(name);
      if ((!is_name(token(at)) && token(at) != "::") || joins) break;
      name = token(at) + name;
    }
    at_ = past(at_, "(", ")");
    if (!is_name(name)) return;
    std::string qualified;
    for (const std::string& scope : scopes_) qualified += scope + "::";
    size_t at = at_;
    while (at < tokens_.size() && token(at) != ";" && token(at) != "{" && token(at) != "=" &&
           token(at) != ":" && token(at) != "}")
      at = token(at) == "(" ? past(at, "(", ")") : at + 1;
    const bool is_body = token(at) == "{" || token(at) == ":";
    (is_body ? functions_.defined : functions_.declared).push_back(qualified + name);
    if (token(at) == ":") {  // a constructor's initialisers
      do {
        ++at;
        while (at < tokens_.size() && token(at) != "(" && token(at) != "{") ++at;
        at = token(at) == "(" ? past(at, "(", ")") : past(at, "{", "}");
      } while (token(at) == ",");
    }
    at_ = token(at) == "{" ? past(at, "{", "}") : at;
  }

  std::vector<std::string> tokens_;
  size_t at_ = 0;
  std::vector<std::string> scopes_;
  Functions functions_;
};

inline Functions functions_of(const std::string& text) { return FunctionReader(text).functions(); }

/// The types that a source defines at namespace scope, by qualified name; those in an
/// anonymous namespace have "(anonymous)" in their names.
class DefinitionReader {
 public:
  explicit DefinitionReader(const std::string& text) : tokens_(code_tokens(plain_code(text))) {
    while (at_ < tokens_.size()) read_one();
  }
  const std::vector<std::string>& names() const { return names_; }

 private:
  const std::string& token(size_t at) const {
    static const std::string none;
    return at < tokens_.size() ? tokens_[at] : none;
  }
  static bool is_name(const std::string& text) {
    return !text.empty() &&
           (std::isalpha(static_cast<unsigned char>(text[0])) != 0 || text[0] == '_');
  }
  /// The position after the bracket that closes the one at `at`.
  size_t past(size_t at, const std::string& open, const std::string& close) const {
    int depth = 0;
    for (; at < tokens_.size(); ++at) {
      depth += tokens_[at] == open ? 1 : tokens_[at] == close ? -1 : 0;
      if (depth == 0) return at + 1;
    }
    return at;
  }

  void read_one() {
    const std::string& word = token(at_);
    if (word == "namespace") return read_namespace();
    if (word == "extern" && token(at_ + 2) == "{") {  // extern "C", whose string reads 0
      scopes_.emplace_back();
      at_ += 3;
    } else if (word == "template" && token(at_ + 1) == "<") {
      at_ = past(at_ + 1, "<", ">");
    } else if (word == "struct" || word == "class" || word == "enum" || word == "union") {
      read_type();
    } else if (word == "{") {
      at_ = past(at_, "{", "}");  // a body: nothing in it is at namespace scope
    } else if (word == "(") {
      at_ = past(at_, "(", ")");
    } else {
      if (word == "}" && !scopes_.empty()) scopes_.pop_back();
      ++at_;
    }
  }

  void read_namespace() {
    std::string name;
    size_t at = at_ + 1;
    for (; at < tokens_.size() && token(at) != "{" && token(at) != ";" && token(at) != "="; ++at)
      name += token(at);
    if (token(at) == "{") scopes_.push_back(name.empty() ? "(anonymous)" : name);
    at_ = at + 1;
  }

  void read_type() {
    size_t at = at_ + 1;
    if (token(at) == "class" || token(at) == "struct") ++at;
    while (token(at) == "[" || token(at) == "alignas")
      at = token(at) == "[" ? past(at, "[", "]") : past(at + 1, "(", ")");
    std::string name;
    while (is_name(token(at)) || token(at) == "::") {
      if (is_name(token(at)) && is_name(token(at - 1)) && !name.empty()) break;
      name += token(at++);
    }
    if (token(at) == "<") {  // a specialisation is a separate type
      const size_t end = past(at, "<", ">");
      for (; at < end; ++at) name += token(at);
    }
    if (token(at) == "final") ++at;
    if (token(at) == ":") {
      while (at < tokens_.size() && token(at) != "{" && token(at) != ";") ++at;
    }
    if (token(at) == "{" && !name.empty()) {
      std::string qualified;
      for (const std::string& scope : scopes_)
        if (!scope.empty()) qualified += scope + "::";
      names_.push_back(qualified + name);
    }
    at_ = std::max(at, at_ + 1);
  }

  std::vector<std::string> tokens_;
  size_t at_ = 0;
  std::vector<std::string> scopes_, names_;
};

inline std::vector<std::string> definitions(const std::string& text) {
  return DefinitionReader(text).names();
}

}  // namespace house
