#include "src/recipe/shipped.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <vector>

#include "kernels/common/error.h"
#include "src/base/text.h"
#include "src/io/files.h"

namespace lft::recipe {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kRecipes = "recipes/";

std::vector<fs::path> places() {
  if (const char* chosen = std::getenv("LFT_RECIPES")) return {chosen};
  std::error_code code;
  const fs::path program = fs::read_symlink("/proc/self/exe", code).parent_path();
  return {program / "../recipes", program / "../share/lft/recipes", "recipes"};
}

}  // namespace

std::string shipped_folder() {
  std::vector<std::string> tried;
  for (const fs::path& place : places()) {
    std::string folder = place.lexically_normal().string();
    if (io::is_directory(folder)) return folder;
    tried.push_back(folder);
  }
  refuse(ErrorKind::kUsage, "the recipes folder was not found", {},
         "no such folder: " + join(tried), {}, "set LFT_RECIPES to the folder with the recipes");
}

std::vector<std::string> shipped_names() {
  const fs::path folder = shipped_folder();
  std::vector<std::string> names;
  std::error_code code;
  for (fs::recursive_directory_iterator
           at(folder, fs::directory_options::skip_permission_denied, code),
       end;
       !code && at != end; at.increment(code)) {
    if (at->path().extension() != kRecipeSuffix || !at->is_regular_file(code)) continue;
    names.push_back(at->path().lexically_relative(folder).replace_extension().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string resolve_recipe(const std::string& path) {
  if (io::path_exists(path) && !io::is_directory(path)) return path;
  if (const std::string bundled = resolve_bundled_path(path); bundled != path) return bundled;
  if (path.empty() || path.find('/') != std::string::npos || path.ends_with(kRecipeSuffix))
    return path;
  return resolve_bundled_path(std::string(kRecipes) + path + kRecipeSuffix);
}

std::string resolve_bundled_path(const std::string& path) {
  if (!path.starts_with(kRecipes) || io::path_exists(path)) return path;
  for (const fs::path& place : places()) {
    std::string there = (place / path.substr(kRecipes.size())).lexically_normal().string();
    if (io::path_exists(there)) return there;
  }
  return path;
}

}  // namespace lft::recipe
