#include <cstdio>
#include <memory>

#include "kernels/common/error.h"
#include "src/cli/commands.h"
#include "src/cli/infer.h"
#include "src/io/files.h"
#include "src/train/recipe_encoding.h"

namespace lft::cli {
namespace {

struct PrepareArgs {
  std::string recipe, out;
  std::vector<std::string> sets;
};

/// The output replaces nothing that is read: not a folder that holds the model, the data or the images, nor one inside the model.
void check_output(const std::string& out, const Recipe& recipe) {
  std::vector<std::string> inputs = {recipe.model.path, recipe.data.train};
  if (!recipe.data.image_root.empty()) inputs.push_back(recipe.data.image_root);
  for (const std::string& input : inputs) {
    if (!is_inside(input, out) && !is_inside(out, recipe.model.path)) continue;
    throw Error(ErrorKind::kUsage, {.what = "the output would harm an input",
                                    .where = "--out " + out,
                                    .found = input,
                                    .expected = "a folder of its own",
                                    .next = "give another --out"});
  }
}

void prepare(const PrepareArgs& args) {
  const Recipe recipe = read_recipe(args.recipe, args.sets);
  check_output(args.out, recipe);
  const auto [tokenizer, options] = recipe_encoding(recipe);
  const std::unique_ptr<Dataset> dataset = open_dataset(recipe.data.train, recipe.data.image_root, *tokenizer, options);
  prepare_dataset(*dataset, options, args.out, kPreparedShardBytes, stop_if_requested);
  std::printf("prepared %lld samples; train on them with data.train: %s\n", static_cast<long long>(dataset->size()), args.out.c_str());
}

}  // namespace

void add_prepare(CLI::App& app) {
  auto args = std::make_shared<PrepareArgs>();
  CLI::App* command = app.add_subcommand("prepare", "tokenise and decode data.train once, into shards that train reads without a decoder");
  command->add_option("recipe", args->recipe, "the recipe whose model, template and data.train are used")->required();
  command->add_option("--set", args->sets, "key=value: override a recipe field")->take_all()->allow_extra_args(false);
  command->add_option("--out", args->out, "directory to write; give it as data.train afterwards")->required();
  command->callback([args] { prepare(*args); });
}

}  // namespace lft::cli
