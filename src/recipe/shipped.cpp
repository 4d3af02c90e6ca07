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
constexpr std::string_view kSuffix = ".yaml";

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

std::string resolve_bundled_path(const std::string& path) {
  constexpr std::string_view kRecipes = "recipes/";
  if (!path.starts_with(kRecipes) || io::path_exists(path)) return path;
  for (const fs::path& place : places()) {
    std::string there = (place / path.substr(kRecipes.size())).lexically_normal().string();
    if (io::path_exists(there)) return there;
  }
  return path;
}

std::vector<std::string> shipped_names() {
  std::vector<std::string> names;
  std::error_code code;
  for (const fs::path& place : places()) {
    if (!io::is_directory(place.string())) continue;
    for (fs::recursive_directory_iterator
             at(place, fs::directory_options::skip_permission_denied, code),
         end;
         !code && at != end; at.increment(code)) {
      if (at->path().extension() != kSuffix || !at->is_regular_file(code)) continue;
      names.push_back(at->path().lexically_relative(place).replace_extension().string());
    }
    break;
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string recipe_file(const std::string& given) {
  std::error_code code;
  if (fs::is_regular_file(given, code)) return given;
  std::string bundled = resolve_bundled_path(given);
  if (bundled != given) return bundled;
  const std::string bare =
      given.ends_with(kSuffix) ? given.substr(0, given.size() - kSuffix.size()) : given;
  const std::vector<std::string> names = shipped_names();
  return std::find(names.begin(), names.end(), bare) == names.end()
             ? given
             : shipped_folder() + "/" + bare + std::string(kSuffix);
}

}  // namespace lft::recipe
