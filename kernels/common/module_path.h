// Opens modules at run time, since they link libraries that not every machine has or run needs.
#pragma once
#include <dlfcn.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace lft {

/// The path of a file from the build: next to the program, where both are installed, or in the
/// build folder of a test program. Next to the program if the file does not exist.
inline std::string module_path(const std::string& file) {
  std::error_code none;
  const std::filesystem::path folder =
      std::filesystem::read_symlink("/proc/self/exe", none).parent_path();
  for (const auto& place : {folder, folder.parent_path() / "lib" / "lft", folder.parent_path()}) {
    if (std::filesystem::exists(place / file, none)) return (place / file).string();
  }
  return (folder / file).string();
}

/// A function of a module, or null and why there is none.
struct ModuleEntry {
  void* function = nullptr;
  std::string path, why;
};
inline ModuleEntry module_entry(const std::string& file, const char* name) {
  ModuleEntry entry{.function = nullptr, .path = module_path(file), .why = {}};
  if (void* const module = dlopen(entry.path.c_str(), RTLD_NOW | RTLD_LOCAL))
    entry.function = dlsym(module, name);
  if (entry.function != nullptr) return entry;
  const char* const why = dlerror();
  entry.why = why == nullptr ? "no reason given" : why;
  return entry;
}

}  // namespace lft
