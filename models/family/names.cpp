#include "models/family/names.h"

namespace lft::family {

std::vector<int64_t> TensorSpec::stored_shape(bool transposed) const {
  if (experts == 0) return shape;
  const int64_t out = shape[0] / experts, in = shape[1];
  return transposed ? std::vector<int64_t>{experts, in, out}
                    : std::vector<int64_t>{experts, out, in};
}

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
