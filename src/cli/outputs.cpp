#include "src/cli/outputs.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "kernels/common/error.h"
#include "src/io/files.h"

namespace lft::cli {
namespace {

bool is_image_name(const std::string& path) {
  static constexpr std::array<std::string_view, 7> kNames = {"jpg",  "jpeg", "png", "bmp",
                                                             "webp", "tif",  "tiff"};
  std::string name = path.substr(path.rfind('.') + 1);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

[[noreturn]] void refuse_output(const std::string& option, const std::string& path,
                                const std::string& input) {
  refuse(ErrorKind::kUsage, "the output would harm an input", option + " " + path,
         "inside " + input, "a path outside the recipe, the model, the adapter and the data",
         "name another file");
}

}  // namespace

Inputs inputs_of(const std::string& recipe_file, const recipe::Recipe& recipe) {
  Inputs inputs{.paths = {recipe_file, recipe.model.path, recipe.lora.init_from, recipe.data.eval},
                .image_roots = {recipe.data.image_root}};
  for (const recipe::Source& source : recipe.data.train.sources()) {
    inputs.paths.push_back(source.path);
    inputs.image_roots.push_back(source.image_root);
  }
  return inputs;
}

void refuse_input(const std::string& option, const std::string& path, const Inputs& inputs) {
  if (path.empty()) return;
  const std::string full = io::absolute_path(path);
  for (const std::string& input : inputs.paths) {
    if (!input.empty() && io::is_inside(full, input)) refuse_output(option, path, input);
  }
  if (!is_image_name(full) || !io::path_exists(full)) return;
  for (const std::string& root : inputs.image_roots) {
    if (!root.empty() && io::is_inside(full, root)) refuse_output(option, path, root);
  }
}

}  // namespace lft::cli
