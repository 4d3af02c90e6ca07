#include <memory>

#include "kernels/common/error.h"
#include "src/base/log.h"
#include "src/base/parallel.h"
#include "src/cli/commands.h"
#include "src/cli/recipe_args.h"
#include "src/data/prepared_write.h"
#include "src/io/files.h"
#include "src/recipe/pair_words.h"
#include "src/train/inputs/recipe_encoding.h"

namespace lft::cli {
namespace {

struct PrepareArgs {
  RecipeArgs recipe;
  std::string out;
  bool index = false;
};

/// The output must not replace an input: neither a directory that contains the model, the data or
/// the images, nor one inside the model.
void check_output(const std::string& out, const recipe::Recipe& recipe) {
  std::vector<std::string> inputs = {recipe.model.path, recipe.data.image_root};
  for (const recipe::Source& source : recipe.data.train.sources())
    inputs.insert(inputs.end(), {source.path, source.image_root});
  std::erase(inputs, "");
  for (const std::string& input : inputs) {
    if (!io::is_inside(input, out) && !io::is_inside(out, recipe.model.path)) continue;
    refuse(ErrorKind::kUsage, "the output would harm an input", "--out " + out, input,
           "a separate directory", "give another --out");
  }
}

/// Writes the index next to each data file, where every start searches.
void write_indexes(const recipe::Recipe& recipe) {
  const auto [tokenizer, options] = train::recipe_encoding(recipe);
  std::vector<recipe::Source> sources = recipe.data.train.sources();
  if (!recipe.data.eval.empty()) sources.push_back({.path = recipe.data.eval, .image_root = {}});
  for (const auto& [path, image_root, weight] : sources) {
    if (io::is_directory(path)) {
      refuse(ErrorKind::kUsage, "a directory of data cannot have an index next to it", path, {},
             "a data file", "train on it as it is: prepared data is an index itself");
    }
    if (path.find("dataset_info.json") != std::string::npos) {
      refuse(ErrorKind::kUsage, "an index is written next to a data file only", path, {},
             "a data file", "train on it as it is: a run keeps its index in its folder");
    }
    const std::unique_ptr<data::Dataset> dataset =
        data::open_dataset(path, image_root.empty() ? recipe.data.image_root : image_root,
                           *tokenizer, options, {.kept = {}, .lengths = true});
    dataset->measure(all_cores());
    dataset->keep_index(path + data::kIndexSuffix);
    print_line("indexed " + recipe::samples_text(recipe, dataset->size()) + ": " + path +
               data::kIndexSuffix + ".*");
  }
}

void prepare(const PrepareArgs& args) {
  if (args.index != args.out.empty()) {
    refuse(ErrorKind::kUsage, "lft prepare writes shards or an index", "--out, --index",
           args.index ? "both" : "neither", "one of them",
           "give --out DIR for shards, or --index for an index next to the data");
  }
  const recipe::Recipe recipe = args.recipe.read();
  if (args.index) return write_indexes(recipe);
  check_output(args.out, recipe);
  if (recipe.data.train.list.size() > 1) {
    refuse(ErrorKind::kUsage, "prepared data has no sources, and data.train lists several",
           "data.train", recipe.data.train.text(), "one of them",
           "prepare each by itself (--set data.train=PATH), and list the folders instead");
  }
  const auto [tokenizer, options] = train::recipe_encoding(recipe);
  const std::unique_ptr<data::Dataset> dataset = train::open_train(recipe, *tokenizer, options);
  const int64_t bad = data::prepare_dataset(*dataset, options, args.out, data::kPreparedShardBytes,
                                            stop_if_requested);
  print_line("prepared " + recipe::samples_text(recipe, dataset->size()) +
             (bad == 0 ? "" : ", " + std::to_string(bad) + " of them bad, which will be left out") +
             "; train on them with data.train: " + args.out);
}

}  // namespace

void add_prepare(Command& app) {
  auto args = std::make_shared<PrepareArgs>();
  Command command = app.subcommand(
      "prepare",
      "tokenise and decode data.train once into shards that train reads without a decoder");
  command
      .option("recipe", args->recipe.path, "recipe whose model, template and data.train are used")
      .required();
  command
      .option("--set", args->recipe.sets,
              "key.path=value: override one field of the recipe; may be repeated")
      .one_each();
  command.option("--out", args->out, "output directory, for data.train");
  command.flag("--index", args->index,
               "instead of --out: write an index of all rows next to data.train and data.eval, so "
               "that a start does not read all rows");
  command.run([args] { prepare(*args); });
}

}  // namespace lft::cli
