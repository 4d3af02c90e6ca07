#include "models/base/dims.h"

#include <string>
#include <vector>

#include "kernels/common/error.h"
#include "models/base/call.h"

namespace lft::dims_detail {
namespace {

/// Formats dimensions: "[b, t, d=256]", "[..., d=256]".
std::string pattern_text(const std::vector<Dim>& dims, bool has_rest) {
  std::string text = has_rest ? "..." : "";
  for (const Dim& dim : dims) {
    const std::string name = dim.name;
    text += text.empty() ? "" : ", ";
    text += dim.size == kAnySize ? name
            : name.empty()       ? std::to_string(dim.size)
                                 : name + "=" + std::to_string(dim.size);
  }
  return "[" + text + "]";
}

/// The same names with the actual sizes if the number matches: "[b=2, t=17, d=192]".
std::string sizes_text(const at::Tensor& x, std::vector<Dim> dims, bool has_rest) {
  if (!x.defined()) return "no tensor";
  const auto count = static_cast<size_t>(x.dim());
  if (has_rest && count > dims.size()) dims.insert(dims.begin(), count - dims.size(), Dim{""});
  if (count != dims.size()) dims.assign(count, Dim{""});
  for (size_t i = 0; i < count; ++i) dims[i].size = x.size(static_cast<int64_t>(i));
  return pattern_text(dims, /*has_rest=*/false);
}

/// The first mismatch as a clause: "d is 192, not 256".
std::string fault(const at::Tensor& x, const std::vector<Dim>& dims, bool has_rest) {
  if (!x.defined()) return "is missing";
  const auto count = static_cast<size_t>(x.dim());
  if (has_rest ? count < dims.size() : count != dims.size()) {
    return "has " + std::to_string(x.dim()) + " dimensions, not " + (has_rest ? "at least " : "") +
           std::to_string(static_cast<int64_t>(dims.size()));
  }
  std::string text;
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t found = x.size(static_cast<int64_t>(count - dims.size() + i));
    if (dims[i].size == kAnySize || found == dims[i].size) continue;
    const std::string name = dims[i].name;
    text += text.empty() ? "does not fit: " : "; ";
    text += (name.empty() ? "dimension " + std::to_string(static_cast<int64_t>(i)) : name) +
            " is " + std::to_string(found) + ", not " + std::to_string(dims[i].size);
  }
  return text;
}

[[noreturn]] void throw_misfit(const at::Tensor& x, const std::string& name,
                               const std::vector<Dim>& dims, bool has_rest) {
  const std::string path = current_module_path();
  throw Error(ErrorKind::kInternal,
              {.what = "a tensor of the wrong shape: " + name + " " + fault(x, dims, has_rest),
               .where = path.empty() ? "the model, outside its modules" : "module " + path,
               .found = name + " " + sizes_text(x, dims, has_rest),
               .expected = name + " " + pattern_text(dims, has_rest),
               .next = "lft summary shows the input and output shape of every module of a healthy "
                       "pass; look for "
                       "the first that differs before this one"});
}

}  // namespace

void fail(const at::Tensor& x, const char* name, const Dim* dims, size_t count, bool has_rest) {
  throw_misfit(x, name, {dims, dims + count}, has_rest);
}

void fail_like(const at::Tensor& x, const char* name, const at::Tensor& like, Dim last) {
  std::vector<Dim> dims;
  for (int64_t i = 0; i + 1 < like.dim(); ++i) dims.push_back({"", like.size(i)});
  dims.push_back(last);
  throw_misfit(x, name, dims, /*has_rest=*/false);
}

}  // namespace lft::dims_detail
