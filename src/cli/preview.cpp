// lft preview: the first samples in the form used by training.
#include "src/debug/data/preview.h"

#include <unistd.h>

#include <memory>

#include "src/base/log.h"
#include "src/cli/commands.h"
#include "src/cli/outputs.h"
#include "src/cli/recipe_args.h"
#include "src/debug/data/preview_print.h"
#include "src/hf/model_dir.h"
#include "src/io/files.h"
#include "src/train/inputs/recipe_encoding.h"

namespace lft::cli {
namespace {

struct PreviewArgs {
  RecipeArgs recipe;
  std::string html, other_template;
  int64_t count = 3;
  std::vector<std::string> rows;
};

void preview(const PreviewArgs& args) {
  recipe::Recipe recipe = args.recipe.read();
  train::settle_data(recipe, recipe.model.path,
                     hf::ModelDir::config_only(recipe.model.path).config);
  refuse_input("--html", args.html, inputs_of(args.recipe.path, recipe));
  const std::vector<debug::Preview> previews = args.rows.empty()
                                                   ? debug::preview_samples(recipe, args.count)
                                                   : debug::preview_rows(recipe, args.rows);
  std::vector<debug::Preview> others;
  if (!args.other_template.empty())
    others = debug::under_template(recipe, args.other_template, previews);
  const bool terminal = isatty(STDOUT_FILENO) == 1;
  const auto print = [&](std::string text) {
    text.pop_back();  // print_line() ends it
    print_line(text);
  };
  for (size_t i = 0; i < previews.size(); ++i) {
    if (i > 0) print_line("");
    print(debug::preview_text(previews[i], recipe, terminal));
    if (i >= others.size()) continue;
    print_line("\nunder --template " + args.other_template + ": " +
               debug::prompt_difference(previews[i], others[i]));
    print(debug::preview_text(others[i], recipe, terminal));
  }
  if (!args.html.empty())
    io::write_file_atomic(args.html,
                          debug::preview_page(previews, recipe, others, args.other_template));
}

}  // namespace

void add_preview(Command& app) {
  auto args = std::make_shared<PreviewArgs>();
  Command command = app.subcommand(
      "preview",
      "show the first samples as training sees them: prompt with supervised tokens, images");
  add_recipe_args(command, args->recipe, "recipe whose data.train is shown").one_each();
  command.option("-n", args->count, "number of samples, in training order")
      .range(1, 100000)
      .show_default();
  command
      .option("--row", args->rows,
              "show the row with this id, or at the place that lft validate prints, of data.train "
              "or data.eval; may be repeated")
      .one_each();
  command.option("--template", args->other_template,
                 "also render each row with this template (auto, a name or a Jinja file), such as "
                 "a server's, and show where the prompts differ");
  command.option("--html", args->html, "also write an HTML file with the images, for offline use");
  command.run([args] { preview(*args); });
}

}  // namespace lft::cli
