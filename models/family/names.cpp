#include "models/family/names.h"

namespace lft::family {

bool strip(std::string_view name, std::string_view head, std::string_view* rest) {
  if (!name.starts_with(head)) return false;
  if (name.size() == head.size()) {
    *rest = {};
    return true;
  }
  if (name[head.size()] != '.') return false;
  *rest = name.substr(head.size() + 1);
  return true;
}

std::string joined(std::string_view head, std::string_view rest) {
  return rest.empty() ? std::string(head) : std::string(head) + "." + std::string(rest);
}

}  // namespace lft::family
