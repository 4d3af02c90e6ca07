#include "src/text/jinja/run/symbols.h"

#include <algorithm>
#include <cassert>

namespace lft::text::jinja {

Symbols::Symbols(Symbols* parent, FunctionScope* function, Program* program)
    : parent_(parent),
      function_(function),
      program_(program),
      slots_(std::make_shared<std::map<std::string, uint32_t>>()) {}

const Symbols::Reference* Symbols::reference(const std::string& name) const {
  for (const Symbols* at = this; at != nullptr; at = at->parent_) {
    const auto found = at->references_.find(name);
    if (found != at->references_.end()) return &found->second;
  }
  return nullptr;
}

uint32_t Symbols::define(const std::string& name) {
  const auto [at, is_new] = slots_->emplace(name, function_->function->slots);
  if (is_new) ++function_->function->slots;
  references_[name] = {function_, at->second};
  return at->second;
}

Load Symbols::global(const std::string& name) const {
  auto& globals = program_->globals;
  const auto found = std::find(globals.begin(), globals.end(), name);
  Load load;
  load.kind = Load::Kind::kGlobal;
  load.global = static_cast<uint32_t>(found - globals.begin());
  if (found == globals.end()) globals.push_back(name);
  return load;
}

Load Symbols::copy_of(const Reference& outer) const {
  Load load;
  load.kind = Load::Kind::kCopy;
  load.from.slot = outer.slot;
  for (const FunctionScope* at = function_; at != outer.function; at = at->outer) ++load.from.hops;
  return load;
}

void Symbols::load(const std::string& name) {
  if (reference(name) != nullptr) return;
  const Load load = global(name);
  loads_[define(name)] = load;
}

void Symbols::store(const std::string& name) {
  stores_.insert(name);
  if (references_.contains(name)) return;
  const Reference* outer = parent_ == nullptr ? nullptr : parent_->reference(name);
  const Load load = outer == nullptr ? Load{} : copy_of(*outer);
  loads_[define(name)] = load;
}

uint32_t Symbols::declare(const std::string& name) {
  stores_.insert(name);
  const uint32_t slot = define(name);
  loads_.erase(slot);
  return slot;
}

void Symbols::merge(const std::vector<Symbols>& branches) {
  std::set<std::string> stores;
  for (const Symbols& branch : branches)
    stores.insert(branch.stores_.begin(), branch.stores_.end());
  for (const std::string& name : stores_) stores.erase(name);
  for (const Symbols& branch : branches) {
    for (const auto& [name, found] : branch.references_) references_[name] = found;
    for (const auto& [slot, load] : branch.loads_) loads_[slot] = load;
    stores_.insert(branch.stores_.begin(), branch.stores_.end());
  }
  for (const std::string& name : stores) {
    const Reference* outer = parent_ == nullptr ? nullptr : parent_->reference(name);
    loads_[references_.at(name).slot] = outer == nullptr ? global(name) : copy_of(*outer);
  }
}

Variable Symbols::find(const std::string& name, const FunctionScope* from) const {
  const Reference* found = reference(name);
  assert(found != nullptr);
  Variable variable{.hops = 0, .slot = found->slot};
  for (; from != found->function; from = from->outer) ++variable.hops;
  return variable;
}

Scope Symbols::scope() const {
  Scope scope;
  for (const auto& [slot, load] : loads_) {
    scope.loads.push_back(load);
    scope.loads.back().slot = slot;
  }
  return scope;
}

}  // namespace lft::text::jinja
