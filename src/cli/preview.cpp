// lft preview: the first samples as training will see them.
#include "src/debug/preview.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "src/cli/commands.h"
#include "src/cli/outputs.h"
#include "src/io/files.h"

namespace lft::cli {
namespace {

struct PreviewArgs {
  std::string recipe, html;
  std::vector<std::string> sets;
  int64_t count = 3;
};

void preview(const PreviewArgs& args) {
  const Recipe recipe = read_recipe(args.recipe, args.sets);
  refuse_input("--html", args.html, inputs_of(args.recipe, recipe));
  const std::vector<Preview> previews = preview_samples(recipe, args.count);
  const bool terminal = isatty(STDOUT_FILENO) == 1;
  for (size_t i = 0; i < previews.size(); ++i) {
    std::printf("%s%s", i > 0 ? "\n" : "", preview_text(previews[i], recipe, terminal).c_str());
  }
  if (!args.html.empty()) write_file_atomic(args.html, preview_page(previews, recipe));
}

}  // namespace

void add_preview(CLI::App& app) {
  auto args = std::make_shared<PreviewArgs>();
  CLI::App* command =
      app.add_subcommand("preview", "the first samples as training sees them: prompt with what is supervised, tokens, images");
  command->add_option("recipe", args->recipe, "the recipe whose data.train is shown")->required();
  command->add_option("--set", args->sets, "key.path=value: overrides one field of the recipe; may be repeated")
      ->take_all()
      ->allow_extra_args(false);
  command->add_option("-n", args->count, "how many, in the order of training")
      ->check(CLI::Range(int64_t{1}, int64_t{100000}))
      ->capture_default_str();
  command->add_option("--html", args->html, "also writes them with their images into one file that a browser shows offline");
  command->callback([args] { preview(*args); });
}

}  // namespace lft::cli
