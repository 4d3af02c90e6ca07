#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>

#include "kernels/common/error.h"
#include "src/base/log.h"
#include "src/cli/commands.h"
#include "src/cli/infer.h"
#include "src/cli/recipe_args.h"
#include "src/data/held_out.h"
#include "src/hf/model_dir.h"
#include "src/infer/evaluate.h"
#include "src/io/files.h"
#include "src/io/json.h"
#include "src/report/progress.h"
#include "src/train/inputs/model_shapes.h"
#include "src/train/inputs/recipe_encoding.h"

namespace lft::cli {
namespace {

struct EvalCommand {
  InferOptions infer;
  RecipeArgs recipe;  // its path is empty where none was given
  std::string data, image_root, out;
  int64_t max_new_tokens = 256;
  double share = 0;  // of the rows, held out by this seed: a recipe's data.eval_share
  uint64_t seed = 0;
};

/// What the command line leaves open is the recipe's: the model it trained, its adapter, held-out
/// rows, template and fit.
void fill_from_recipe(EvalCommand& command) {
  recipe::Recipe recipe = command.recipe.read();
  const bool whole = train::product_of(recipe) == "model";
  if (command.infer.model.empty()) {
    const std::string trained = recipe.output_dir + "/model",
                      adapter = recipe.output_dir + "/" + train::product_of(recipe);
    command.infer.model = whole && io::is_directory(trained) ? trained : recipe.model.path;
    if (!whole && command.infer.adapter.empty() && io::is_directory(adapter))
      command.infer.adapter = adapter;
  }
  if (command.data.empty() && recipe.data.eval_share > 0) {
    command.data = recipe.data.train;
    command.share = recipe.data.eval_share;
    command.seed = static_cast<uint64_t>(recipe.train.seed);
  }
  if (command.data.empty()) command.data = recipe.data.eval;
  if (command.image_root.empty()) command.image_root = recipe.data.image_root;
  train::settle_data(recipe, hf::ModelDir::config_only(command.infer.model).config);
  const data::EncodeRules encoding = train::encode_rules(recipe);
  if (command.infer.template_name.empty()) command.infer.template_name = encoding.template_name;
  if (command.infer.image_fit.empty()) command.infer.image_fit = encoding.image_fit;
  command.infer.min_pixels = encoding.min_pixels;
  command.infer.max_pixels = encoding.max_pixels;
  command.infer.max_tokens = recipe.data.max_tokens;
  data::EncodeOptions rules;
  train::apply_data_rules(recipe, rules);
  command.infer.image_limits = rules.image_limits;
  command.infer.count_unknown = rules.count_unknown;
  command.infer.special_tokens = rules.special_tokens;
}

io::Json record_line(const infer::EvalRecord& record) {
  const auto known = [](bool is, const io::Json& value) { return is ? value : io::Json(nullptr); };
  return {{"id", record.id},
          {"question", record.question},
          {"reference", record.reference},
          {"answer", known(record.answered, record.answer)},
          {"exact", known(record.answered, record.match)},
          {"loss", known(record.supervised > 0, record.loss)}};
}

void eval(EvalCommand command) {
  if (!command.recipe.path.empty()) fill_from_recipe(command);
  if (command.data.empty()) {
    refuse(ErrorKind::kUsage, "no rows to evaluate on", command.recipe.path, {},
           command.recipe.path.empty()
               ? "--data FILE"
               : "data.eval or data.eval_share in the recipe, or --data FILE",
           "name a file of rows as for training, or a prepared directory");
  }
  std::optional<OutputLines> out;
  if (!command.out.empty()) {
    out.emplace(command.out, Inputs{{command.recipe.path, command.infer.model,
                                     command.infer.adapter, command.data},
                                    command.image_root});
  }
  InferModel infer = load_infer_model(command.infer);
  std::unique_ptr<data::Dataset> dataset =
      data::open_dataset(command.data, command.image_root, *infer.tokenizer, infer.encode);
  if (command.share > 0)
    dataset = data::hold_out(std::move(dataset), command.share, command.seed).eval;

  int64_t done = 0;
  std::optional<report::EvalProgress> progress(dataset->size());
  const auto each = [&](const infer::EvalRecord& record) {
    if (out)
      out->line(record_line(record).dump(-1, ' ', false, io::Json::error_handler_t::replace));
    progress->update(++done);
  };
  infer::EvalOptions options;
  options.max_new_tokens = command.max_new_tokens;
  options.compute = infer.dtype;
  const infer::EvalResult result =
      infer::evaluate(infer.model, *dataset, *infer.tokenizer, infer.encode, options, each);
  progress.reset();
  stop_if_requested();
  if (out) out->commit();
  if (const int64_t left = result.samples - result.answered; left > 0) {
    notice(std::to_string(left) + " of " + std::to_string(result.samples) +
           " rows have no answer within " + std::to_string(infer.encode.max_tokens) +
           " tokens; exact_match is of the others");
  }
  nlohmann::ordered_json last = {
      {"samples", result.samples}, {"exact_match", nullptr}, {"loss", nullptr}};
  if (result.answered > 0) last["exact_match"] = result.exact_match;
  if (result.supervised > 0) last["loss"] = result.loss;
  std::printf("%s\n", last.dump().c_str());
  std::fflush(stdout);
}

}  // namespace

void add_eval(Command& app) {
  Command command = app.subcommand("eval", "loss and exact match on held-out rows");
  const auto options = std::make_shared<EvalCommand>();
  command.option("recipe", options->recipe.path,
                 "a recipe: its model, adapter, held-out rows, template and fit where no option "
                 "says otherwise");
  command.option("--set", options->recipe.sets, "override a recipe field: key=value").one_each();
  add_infer_options(command, options->infer);
  command.option("--data", options->data, "JSON or JSONL file, or a prepared directory");
  command.option("--image-root", options->image_root, "folder of the images");
  command.option("--out", options->out, "write every answer here, one JSON line a sample");
  command.option("--max-new-tokens", options->max_new_tokens, "longest answer")
      .show_default()
      .range(1, 1 << 20);
  command.run([options] { eval(*options); });
}

}  // namespace lft::cli
