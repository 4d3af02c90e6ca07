#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/log.h"
#include "src/base/terminal.h"
#include "src/base/text.h"
#include "src/cli/commands.h"
#include "src/cli/infer.h"
#include "src/cli/infer_target.h"
#include "src/cli/recipe_args.h"
#include "src/data/held_out.h"
#include "src/hf/model_dir.h"
#include "src/infer/evaluate.h"
#include "src/infer/reference_sums.h"
#include "src/io/json.h"
#include "src/runs/runs.h"
#include "src/train/inputs/model_shapes.h"
#include "src/train/inputs/preflight.h"
#include "src/train/inputs/recipe_encoding.h"
#include "src/train/inputs/run_data.h"
#include "src/train/inputs/run_objective.h"
#include "src/train/machine/device.h"
#include "src/train/machine/precision.h"

namespace lft::cli {
namespace {

struct EvalCommand {
  InferOptions infer;
  RecipeArgs recipe;                          // its path is empty if none was given
  std::string data, image_root, out, metric;  // metric: empty: the recipe's keep_best metric
  bool json = false;
  int64_t batch_size = infer::EvalOptions().batch_size;
  DecodeOptions decode;
  std::vector<recipe::Source> held_out = {};  // instead of data: a share of these rows
  double share = 0;  // share held out with this seed: a recipe's data.eval_share
  uint64_t seed = 0;
  /// Of a recipe whose rows are preferences; null otherwise. The reference is `reference` with its
  /// adapter.
  std::shared_ptr<const objective::Objective> preference = {};
  bool of_pairs = false;
  int64_t group = 1;  // rows of a step
  std::string reference = {}, reference_adapter = {};
};

/// Settings in --set take precedence over those that the adapter records.
family::InputSettings set_by_hand(const family::InputSettings& settings,
                                  const std::vector<std::string>& sets) {
  family::InputSettings asked;
  family::for_each_setting([&](const std::string& key, auto member) {
    const bool is = std::ranges::any_of(
        sets, [&](const std::string& one) { return one.starts_with("data." + key + "="); });
    if (is) asked.*member = settings.*member;
  });
  return asked;
}

/// The recipe of the command's target: a file, or that of a run's folder. False without one.
bool read_target_recipe(EvalCommand& command, recipe::Recipe& recipe) {
  const std::string& target = command.infer.target;
  const TargetKind kind = target_kind(target);
  if (kind == TargetKind::kRun && runs::is_run(target)) {
    command.recipe.path = target + "/recipe.resolved.yaml";
    recipe = runs::read_run_recipe(target, command.recipe.sets);
    return true;
  }
  if (kind == TargetKind::kRecipe) {
    command.recipe.path = target;
    recipe = command.recipe.read();
    return true;
  }
  if (!command.recipe.sets.empty())
    refuse(ErrorKind::kUsage, "--set needs a recipe", target, {}, "a run's folder or a recipe",
           "leave --set out, or name a run or a recipe");
  return false;
}

/// The recipe provides everything that the command line does not set: model, adapter, held-out
/// rows, template and image fit.
void fill_from_recipe(EvalCommand& command, recipe::Recipe recipe) {
  take_trained(recipe, command.infer);
  if (auto objective = train::make_objective(recipe); !objective->sums_tokens()) {
    command.preference = std::move(objective);
    command.of_pairs = train::learns_from_pairs(recipe);
    if (command.preference->uses_kl()) command.group = train::settled_rows_of_step(recipe);
    command.reference = recipe.model.path;
    command.reference_adapter = recipe.lora.init_from;
  }
  if (command.data.empty() && recipe.data.eval_share > 0) {
    command.held_out = recipe.data.train.sources();
    command.share = recipe.data.eval_share;
    command.seed = static_cast<uint64_t>(recipe.train.seed);
  }
  if (command.data.empty() && command.held_out.empty()) command.data = recipe.data.eval;
  if (command.metric.empty() && infer::find_metric(recipe.train.keep_best.word()))
    command.metric = recipe.train.keep_best.word();
  if (command.image_root.empty()) command.image_root = recipe.data.image_root;
  const std::string& model = command.infer.model;
  train::settle_data(recipe, model, hf::ModelDir::config_only(model).config);
  command.infer.of_recipe = train::encode_rules(recipe).settings;
  if (command.infer.of_recipe.template_name == "auto")  // which names no template
    command.infer.of_recipe.template_name.clear();
  const family::InputSettings by_hand = set_by_hand(command.infer.of_recipe, command.recipe.sets);
  family::for_each_setting([&](const char*, auto member) {
    if (!family::is_set(command.infer.asked.*member)) command.infer.asked.*member = by_hand.*member;
  });
  command.infer.max_tokens = recipe.data.max_tokens;
  data::EncodeOptions rules;
  train::apply_data_rules(recipe, rules);
  command.infer.image_limits = rules.image_limits;
  command.infer.count_unknown = rules.count_unknown;
  command.infer.count_marks = rules.count_marks;
  command.infer.columns = rules.columns;
  command.infer.skip_bad = rules.skip_bad;
  command.infer.max_bad = rules.max_bad;
}

/// A pair or a row of KTO: its texts, its loss and the objective's figures.
io::Json preference_line(const infer::EvalRecord& record, const data::Row& row,
                         const objective::Objective& objective) {
  io::Json line = {{"id", record.id}, {"loss", record.loss}};
  if (const std::vector<text::Turn> turns = row.turns(); !turns.empty()) {
    line["question"] = turns.back().question;
    line[row.rejected ? "chosen" : "answer"] = turns.back().answer;
    if (row.rejected) line["rejected"] = row.rejected->messages().back().text;
  }
  if (row.desirable) line["desirable"] = *row.desirable;
  for (const auto& [name, value] : objective.means(record.figures, 1)) line[name] = value;
  if (record.bad) line["first_bad_module"] = record.bad->module;
  return line;
}

io::Json record_line(const infer::EvalRecord& record, infer::Metric metric) {
  const auto known = [](bool is, const io::Json& value) { return is ? value : io::Json(nullptr); };
  io::Json line = {{"id", record.id},
                   {"question", record.question},
                   {"reference", known(!record.open, record.reference)},
                   {"answer", known(record.answered, record.answer)},
                   {"exact", known(record.answered && !record.references.empty(), record.match)},
                   {"loss", known(record.supervised > 0, record.loss)}};
  if (record.bad) line["first_bad_module"] = record.bad->module;
  if (metric != infer::Metric::kExact) {
    line[infer::figure_name(metric)] =
        known(record.answered && !record.references.empty(), record.score);
  }
  return line;
}

/// The rows that a recipe held out of its training, or a file of rows.
std::unique_ptr<data::Dataset> open_rows(const EvalCommand& command, const InferModel& infer) {
  if (command.held_out.empty())
    return data::open_dataset(command.data, command.image_root, *infer.tokenizer, infer.encode);
  recipe::Recipe trained;
  trained.data.train.list = command.held_out;
  trained.data.image_root = command.image_root;
  return data::hold_out(train::open_train(trained, *infer.tokenizer, infer.encode), command.share,
                        command.seed)
      .eval;
}

/// Records are written at the end, because captions are scored together.
void write_records(const EvalCommand& command, const infer::EvalResult& result,
                   const data::Dataset& rows, infer::Metric metric, OutputLines& out) {
  for (const infer::EvalRecord& record : result.records)
    out.line(io::json_text(
        command.preference ? preference_line(record, rows.row(record.index), *command.preference)
                           : record_line(record, metric)));
  out.commit();
}

/// One line of JSON, or a table on a terminal.
void print_result(const EvalCommand& command, const infer::EvalResult& result,
                  infer::Metric metric) {
  const auto figures = infer::figures_of(result, metric);
  if (command.json || !is_terminal(STDOUT_FILENO)) {
    nlohmann::ordered_json last = {{"model", command.infer.model},
                                   {"adapter", nullptr},
                                   {"samples", result.samples},
                                   {"exact_match", nullptr},
                                   {"loss", nullptr}};
    if (!command.infer.adapter.empty()) last["adapter"] = command.infer.adapter;
    for (const auto& [name, value] : figures) last[name] = value;
    if (result.supervised > 0) last["loss"] = result.loss;
    std::printf("%s\n", last.dump().c_str());
    std::fflush(stdout);
    return;
  }
  size_t width = 11;
  for (const auto& [name, value] : figures) width = std::max(width, name.size());
  const auto put = [&](std::string label, const std::string& text) {
    std::ranges::replace(label, '_', ' ');
    label.resize(width + 2, ' ');
    print_line(label + text);
  };
  put("model", escape_text(command.infer.model, 1000));
  put("adapter", command.infer.adapter.empty() ? "none: the base alone"
                                               : escape_text(command.infer.adapter, 1000));
  put(command.of_pairs ? "pairs" : "rows", with_commas(result.samples));
  if (result.supervised > 0)
    put("loss",
        format_number(result.loss, "%.4f") + (command.of_pairs     ? " per pair"
                                              : command.preference ? " per row"
                                                                   : " per supervised token"));
  for (const auto& [name, value] : figures) put(name, format_number(value, "%.4f"));
  put(command.of_pairs     ? "each pair"
      : command.preference ? "each row"
                           : "answers",
      command.out.empty() ? "--out FILE writes them" : escape_text(command.out, 1000));
}

void set_row_form(const EvalCommand& command, InferModel& infer) {
  data::EncodeOptions& encode = infer.encode;
  encode.pairs = command.of_pairs;
  encode.share_prompts =
      command.of_pairs && train::packing_fault(infer.dtype, encode.config.text.head_dim,
                                               train::device_facts(infer.device))
                              .empty();
  encode.labelled = command.preference && !command.of_pairs;
}

/// Of each pair, under the reference of the recipe's objective; empty if it uses none. The
/// reference is freed before the model that is evaluated is loaded.
std::vector<double> reference_sums(const EvalCommand& command) {
  if (!command.preference || !command.preference->uses_reference()) return {};
  InferOptions of = command.infer;
  of.model = command.reference;
  of.adapter = command.reference_adapter;
  InferModel reference = load_infer_model(of);
  set_row_form(command, reference);
  const std::unique_ptr<data::Dataset> dataset = open_rows(command, reference);
  return infer::reference_sums(reference.model, *dataset, reference.encode,
                               {.compute = reference.dtype,
                                .phase = "reference",
                                .group = command.preference->uses_kl() ? command.group : 0});
}

void eval(EvalCommand command) {
  if (!command.metric.empty() && !infer::find_metric(command.metric)) {
    refuse(ErrorKind::kUsage, "no such metric", "--metric", command.metric,
           "one of " + join(infer::metric_names()));
  }
  recipe::Recipe recipe;
  if (read_target_recipe(command, recipe)) {
    fill_from_recipe(command, std::move(recipe));
    command.infer.target.clear();  // it has named model and adapter
  }
  settle_target(command.infer);
  if (command.data.empty() && command.held_out.empty()) {
    refuse(ErrorKind::kUsage, "no rows to evaluate on", command.recipe.path, {},
           command.recipe.path.empty()
               ? "--data FILE"
               : "data.eval or data.eval_share in the recipe, or --data FILE",
           "name a file of rows as for training, or a prepared directory");
  }
  std::optional<OutputLines> out;
  if (!command.out.empty()) {
    Inputs inputs{{command.recipe.path, command.infer.model, command.infer.adapter, command.data},
                  {command.image_root}};
    for (const recipe::Source& source : command.held_out) {
      inputs.paths.push_back(source.path);
      inputs.image_roots.push_back(source.image_root);
    }
    out.emplace(command.out, inputs);
  }
  const infer::Metric metric = infer::find_metric(command.metric).value_or(infer::Metric::kExact);
  const std::vector<double> references = reference_sums(command);
  InferModel infer = load_infer_model(command.infer);
  infer.encode.open_questions = !command.preference;
  set_row_form(command, infer);
  const std::unique_ptr<data::Dataset> dataset = open_rows(command, infer);
  if (!references.empty()) dataset->set_references(references);

  infer::EvalOptions options;
  options.batch_size = command.batch_size;
  options.decode = command.decode.generate;
  options.stop = command.decode.stop;
  options.metric = metric;
  options.compute = infer.dtype;
  options.preference = command.preference.get();
  options.group = command.group;
  const infer::EvalResult result =
      infer::evaluate(infer.model, *dataset, *infer.tokenizer, infer.encode, options);
  stop_if_requested();
  for (const std::string& skipped : result.skipped) warning("skipped a bad sample: " + skipped);
  train::check_bad_count(infer.encode, result.skipped,
                         command.held_out.empty() ? command.data : "data.train");
  if (out) write_records(command, result, *dataset, metric, *out);
  if (result.not_finite > 0) throw infer::not_finite_rows(result, *infer.tokenizer, infer.dtype);
  if (const int64_t left = result.samples - result.answered; left > 0 && !command.preference) {
    notice(std::to_string(left) + " of " + std::to_string(result.samples) +
           " rows have no answer within " + std::to_string(infer.encode.max_tokens) +
           " tokens; figures are of the others");
  }
  print_result(command, result, metric);
}

}  // namespace

void add_eval(Command& app) {
  Command command = app.subcommand("eval",
                                   "compute loss, exact match and a metric on held-out rows; only "
                                   "generates answers if rows have none");
  const auto options = std::make_shared<EvalCommand>();
  add_infer_options(command, options->infer);
  add_set_option(command, options->recipe);
  command.option("--data", options->data,
                 "data file (JSON, JSONL, CSV, tar, Parquet, Arrow) or prepared directory");
  command.option("--image-root", options->image_root, "directory of the images");
  command.option("--out", options->out, "file for the answers, one JSON line for each sample");
  command.option("--metric", options->metric,
                 "metric in addition to exact match: exact, vqa (VQAv2), anls (DocVQA), relaxed "
                 "(ChartQA), choice, caption (CIDEr and BLEU-4)");
  command
      .option("--batch-size", options->batch_size,
              "number of rows in a pass; fewer take less memory")
      .show_default()
      .range(1, 4096);
  add_decode_options(command, options->decode);
  command.flag("--json", options->json,
               "print one line of JSON also on a terminal, as in a pipe or a file");
  command.footer(
      "A run's folder or a recipe also gives the held-out rows, the template and the metric; an "
      "adapter or a model needs --data.");
  command.run([options] { eval(*options); });
}

}  // namespace lft::cli
