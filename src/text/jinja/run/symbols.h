// Resolves names to variables by jinja2's scope rules. A name belongs to the innermost scope that
// sets it; if no enclosing scope does, it is looked up when that scope begins.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "src/text/jinja/syntax/ast.h"

namespace lft::text::jinja {

/// A function whose variables are being counted.
struct FunctionScope {
  Function* function;
  FunctionScope* outer;
};

class Symbols {
 public:
  /// The root scope has no parent.
  Symbols(Symbols* parent, FunctionScope* function, Program* program);

  void load(const std::string& name);
  void store(const std::string& name);
  /// Declares a variable that has its value before the scope begins.
  uint32_t declare(const std::string& name);
  /// Merges the names that the branches of a condition, each a copy of this, have added.
  void merge(const std::vector<Symbols>& branches);

  /// Resolves a known name as seen from `from`.
  Variable find(const std::string& name, const FunctionScope* from) const;
  FunctionScope* function() const { return function_; }
  Program* program() const { return program_; }
  Scope scope() const;

 private:
  struct Reference {
    FunctionScope* function;
    uint32_t slot;
  };
  const Reference* reference(const std::string& name) const;
  uint32_t define(const std::string& name);
  Load global(const std::string& name) const;
  Load copy_of(const Reference& outer) const;

  Symbols* parent_;
  FunctionScope* function_;
  Program* program_;
  std::map<std::string, Reference> references_;
  std::map<uint32_t, Load> loads_;  // by slot; without declared ones
  std::set<std::string> stores_;
  /// Branches that set the same name share its variable.
  std::shared_ptr<std::map<std::string, uint32_t>> slots_;
};

}  // namespace lft::text::jinja
