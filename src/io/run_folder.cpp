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

/// A rank that grows with the time of an incident: step-<n>, then eval-step-<n>, the evaluation
/// after it. -1 for other names.
int64_t place_in_time(std::string_view name) {
  constexpr std::string_view kEval = "eval-", kStep = "step-";
  const bool evaluation = name.starts_with(kEval);
  if (evaluation) name.remove_prefix(kEval.size());
  if (!name.starts_with(kStep)) return -1;
  name.remove_prefix(kStep.size());
  int64_t number = -1;
  const char* const end = name.data() + name.size();
  if (std::from_chars(name.data(), end, number).ptr != end || number < 0) return -1;
  return 2 * number + (evaluation ? 1 : 0);
}

}  // namespace

std::string adapter_folder(const std::string& path) {
  const std::string adapter = part_with(path, "adapter", "adapter_config.json");
  return adapter != path ? adapter : part_with(path, "parts", "parts.safetensors");
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
    const int64_t time = place_in_time(name);
    if (time <= last || !path_exists(folder + "/" + name + kFile)) continue;
    last = time;
    newest = folder + "/" + name;
  }
  return newest;
}

}  // namespace lft::io
