#include "src/io/run_folder.h"

#include <charconv>
#include <cstdint>

#include "src/io/files.h"

namespace lft::io {
namespace {

std::string part_with(const std::string& path, const std::string& part, const std::string& file) {
  const std::string inside = path + "/" + part;
  return !path.empty() && !path_exists(path + "/" + file) && path_exists(inside + "/" + file)
             ? inside
             : path;
}

/// -1 where `name` is no step-<n>.
int64_t step_number(const std::string& name) {
  constexpr std::string_view kStart = "step-";
  if (!name.starts_with(kStart)) return -1;
  int64_t number = -1;
  const char* const end = name.data() + name.size();
  return std::from_chars(name.data() + kStart.size(), end, number).ptr == end ? number : -1;
}

}  // namespace

std::string adapter_folder(const std::string& path) {
  return part_with(path, "adapter", "adapter_config.json");
}

std::string model_folder(const std::string& path) {
  return part_with(path, "model", "config.json");
}

std::string incident_folder(const std::string& path) {
  constexpr char kFile[] = "/incident.json";
  if (path_exists(path + kFile)) return path;
  const std::string folder = is_directory(path + "/incidents") ? path + "/incidents" : path;
  if (!is_directory(folder)) return path;
  std::string newest = path;
  int64_t last = -1;
  for (const std::string& name : list_dir(folder)) {
    const int64_t step = step_number(name);
    if (step <= last || !path_exists(folder + "/" + name + kFile)) continue;
    last = step;
    newest = folder + "/" + name;
  }
  return newest;
}

}  // namespace lft::io
