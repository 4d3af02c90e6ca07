// call(name, module, args...) runs a submodule. It tracks the module path, so hooks (shapes, search
// for non-finite values, norms, memory, summary) attach here instead of in model files. It adds the
// path to errors of LibTorch. Single ops are profiled with at::RecordFunction instead.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <string>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace lft {

/// Observes every call made while it is installed on this thread. Inputs and outputs are the
/// tensors among the arguments and results.
class CallObserver {
 public:
  virtual ~CallObserver() = default;
  virtual void before(const std::string& path, const torch::nn::Module& module,
                      const std::vector<at::Tensor>& inputs) {}
  virtual void after(const std::string& path, const torch::nn::Module& module,
                     const std::vector<at::Tensor>& outputs) {}
};

/// Installs an observer on the current thread for the lifetime of this object. Observers nest: the
/// inner one replaces the outer one.
class ObserveCalls {
 public:
  explicit ObserveCalls(CallObserver& observer);
  ~ObserveCalls();
  ObserveCalls(const ObserveCalls&) = delete;

 private:
  CallObserver* previous_;
};

namespace call_detail {
CallObserver* observer();
class PathScope {  // pushes one name (and an index, when >= 0) on the thread's module path
 public:
  PathScope(const char* name, int64_t index);
  ~PathScope();
};
std::string path();
void add_path(c10::Error& error);
template <class T>
void collect(std::vector<at::Tensor>& out, const T& value) {
  if constexpr (std::is_convertible_v<const T&, at::Tensor>) {
    if (at::Tensor tensor = value; tensor.defined()) out.push_back(tensor);
  }
}
inline void collect(std::vector<at::Tensor>& out, const std::vector<at::Tensor>& values) {
  for (const at::Tensor& value : values) collect(out, value);
}
}  // namespace call_detail

/// Runs `module->forward(args...)` under the path component `name` ("layers" with index 3 is
/// "layers.3").
template <class Holder, class... Args>
auto call_indexed(const char* name, int64_t index, const Holder& module, Args&&... args) {
  call_detail::PathScope scope(name, index);
  try {
    Holder handle = module;  // a module holder is deeply const; forward is not
    CallObserver* observer = call_detail::observer();
    if (observer == nullptr) return handle->forward(std::forward<Args>(args)...);
    const std::string path = call_detail::path();
    std::vector<at::Tensor> inputs, outputs;
    (call_detail::collect(inputs, args), ...);
    observer->before(path, *module, inputs);
    auto result = handle->forward(std::forward<Args>(args)...);
    call_detail::collect(outputs, result);
    observer->after(path, *module, outputs);
    return result;
  } catch (c10::Error& error) {
    call_detail::add_path(error);
    throw;
  }
}
template <class Holder, class... Args>
auto call(const char* name, const Holder& module, Args&&... args) {
  return call_indexed(name, -1, module, std::forward<Args>(args)...);
}

/// A snapshot of the module path, restored while a block runs again in the backward pass.
struct PathPart {
  const char* name;
  int64_t index;
};
using ModulePath = std::vector<PathPart>;
ModulePath module_path();
class RestoreModulePath {
 public:
  explicit RestoreModulePath(ModulePath path);
  ~RestoreModulePath();
  RestoreModulePath(const RestoreModulePath&) = delete;

 private:
  ModulePath previous_;
};

/// The dotted path of the module that is running on this thread ("" outside any call). It is part
/// of the key of LoRA's dropout masks.
std::string current_module_path();
/// The path of the innermost call that threw an error of LibTorch ("" outside any call). The type
/// and the text of the error are unchanged.
std::string module_path_of(const c10::Error& error);

}  // namespace lft
