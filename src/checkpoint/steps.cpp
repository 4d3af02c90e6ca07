#include "src/checkpoint/steps.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>

#include "kernels/common/error.h"
#include "src/io/file_handle.h"
#include "src/io/files.h"

namespace lft::checkpoint {
namespace {

constexpr std::string_view kPrefix = "step-";
constexpr char kDisplaced = '~';

bool is_missing(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) != 0 && errno == ENOENT;
}

std::vector<std::string> names_in(const std::string& dir) {
  try {
    return io::list_dir(dir);
  } catch (const Error& error) {
    if (is_missing(dir)) return {};
    throw Error(ErrorKind::kCheckpoint, error.info());
  }
}

}  // namespace

std::string step_name(int64_t step) { return std::string(kPrefix) + std::to_string(step); }

std::optional<int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  int64_t step = 0;
  const char *begin = name.data() + kPrefix.size(), *end = name.data() + name.size();
  if (std::from_chars(begin, end, step).ec != std::errc{} || step < 0) return std::nullopt;
  if (name != step_name(step) && name != step_name(step) + kDisplaced) return std::nullopt;
  return step;
}

StepDirs find_steps(const std::string& dir) {
  StepDirs found;
  for (const std::string& name : names_in(dir)) {
    const std::string path = dir + "/" + name;
    if (const std::optional<int64_t> step = step_of(name)) {
      found.steps.push_back({*step, path, name.back() == kDisplaced});
    } else if (name.starts_with(kPrefix)) {
      found.others.push_back(path);
    } else if (name.starts_with(".tmp-") || name.starts_with(".dead-")) {
      found.leftovers.push_back(path);
    }
  }
  std::sort(found.steps.begin(), found.steps.end(), [](const StepDir& a, const StepDir& b) {
    return a.step == b.step ? a.displaced < b.displaced : a.step > b.step;
  });
  return found;
}

bool entry_exists(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0;
}

std::string rooted_dir(const std::string& dir) {
  std::string rooted = std::filesystem::path(io::rooted_path(dir)).lexically_normal().string();
  while (rooted.size() > 1 && rooted.back() == '/') rooted.pop_back();
  return rooted;
}

}  // namespace lft::checkpoint
