#include "src/hf/adapter/target_names.h"

#include <set>

namespace lft::hf {

std::vector<std::string> target_names(const family::Family& family,
                                      const std::vector<std::string>& modules) {
  std::set<std::string> names;
  for (const std::string& module : modules) {
    names.insert(family.names.peft_name(module));
    names.insert(family.names.whole_name(module));
  }
  return {names.begin(), names.end()};
}

}  // namespace lft::hf
