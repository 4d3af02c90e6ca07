// lft recipe: lists, shows and copies the bundled recipes, and prints the reference of all fields
// and the table of the published models.
#include "src/recipe/recipe.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <sstream>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/cli/commands.h"
#include "src/io/files.h"
#include "src/recipe/field_help.h"
#include "src/recipe/shipped.h"
#include "src/train/memory/model_table.h"

namespace lft::cli {
namespace {

namespace fs = std::filesystem;
constexpr char kSuffix[] = ".yaml";

std::string read_named(const std::string& name) {
  const fs::path folder = recipe::shipped_folder();
  const std::vector<std::string> names = recipe::shipped_names();
  const std::string bare =
      name.ends_with(kSuffix) ? name.substr(0, name.size() - sizeof(kSuffix) + 1) : name;
  if (std::find(names.begin(), names.end(), bare) == names.end()) {
    refuse(ErrorKind::kUsage, "no recipe has this name", {}, quote_text(name),
           "one of " + join(names, ", ", 30), "lft recipe ls describes each of them");
  }
  return io::read_file((folder / (bare + kSuffix)).string(), 1 << 20);
}

/// The second comment line, or the first, which shows how to start the recipe.
std::string description(const std::string& text) {
  std::istringstream lines(text);
  std::string found;
  for (int i = 0; i < 2; ++i) {
    std::string line;
    if (!std::getline(lines, line) || !line.starts_with("#")) break;
    found = line.substr(std::min(line.find_first_not_of("# "), line.size()));
  }
  return found;
}

void list_recipes() {
  const fs::path folder = recipe::shipped_folder();
  const std::vector<std::string> names = recipe::shipped_names();
  size_t width = 0;
  for (const std::string& name : names) width = std::max(width, name.size());
  for (const std::string& name : names) {
    const std::string text = io::read_file((folder / (name + kSuffix)).string(), 1 << 20);
    print_line(escape_text(name) + std::string(width - name.size() + 2, ' ') +
               escape_text(description(text)));
  }
}

void copy_recipe(const std::string& name, std::string path) {
  const std::string text = read_named(name);
  if (io::is_directory(path))
    path = (fs::path(path) / fs::path(name).filename().replace_extension(kSuffix)).string();
  if (io::path_exists(path)) {
    refuse(ErrorKind::kUsage, "the file is there already", path, {}, {},
           "choose another name, or remove it first");
  }
  io::write_file_atomic(path, text);
  std::cout << "wrote " << escape_text(path, 4000) << "\n";
}

}  // namespace

void add_recipe(Command& app) {
  Command recipe = app.subcommand("recipe", "list, show and copy the bundled recipes");
  recipe.require_subcommand();
  const auto name = std::make_shared<std::string>();
  const auto path = std::make_shared<std::string>();

  recipe.subcommand("ls", "list the names with a description").run(list_recipes);
  Command cat = recipe.subcommand("cat", "print a recipe");
  cat.option("NAME", *name, "as lft recipe ls prints it").required();
  cat.run([name] { std::cout << read_named(*name); });
  Command cp = recipe.subcommand("cp", "copy a recipe for editing; never replaces a file");
  cp.option("NAME", *name, "as lft recipe ls prints it").required();
  cp.option("PATH", *path, "file or directory to copy to").required();
  cp.run([name, path] { copy_recipe(*name, *path); });
  recipe
      .subcommand("models",
                  "list the published models that are known by name, as a Markdown table: "
                  "parameters, recipe, memory on a GPU")
      .run([] { std::cout << train::model_table(); });
  Command fields = recipe.subcommand("fields", "list the fields: type, default, range, meaning");
  const auto field = std::make_shared<std::string>();
  fields.option("FIELD", *field,
                "a field, a section, or the beginning of either (default: all, as a Markdown "
                "table)");
  fields.run([field] {
    if (!field->empty()) return print_lines(recipe::field_lines(*field));
    std::string table = recipe::recipe_reference();
    table.pop_back();
    print_line(table);
  });
}

}  // namespace lft::cli
