#include "src/debug/isolate/subset.h"

#include <algorithm>
#include <numeric>
#include <ranges>

#include "src/base/errors.h"
#include "src/base/text.h"
#include "src/data/held_out.h"
#include "src/data/prepared_write.h"
#include "src/io/files.h"
#include "src/io/json.h"
#include "src/train/inputs/run_inputs.h"
#include "src/train/run/trainer.h"

namespace lft::debug {
namespace {

/// Writes the rows and sets them in the recipe. Returns the source of the held-out rows.
std::string take_rows(const train::RunInputs& inputs, int64_t rows, recipe::Recipe& recipe) {
  const auto write = [&](const data::Dataset& whole, int64_t begin, int64_t count,
                         const char* name) {
    const std::string path = recipe.output_dir + name;
    std::vector<int64_t> taken(static_cast<size_t>(count));
    std::iota(taken.begin(), taken.end(), begin);
    data::prepare_dataset(*data::select_rows(whole, std::move(taken)), inputs.data.encode, path);
    return path;
  };
  const data::Dataset& train = *inputs.data.train;
  io::make_dirs(recipe.output_dir);
  recipe.data.train = write(train, 0, rows, "/train-rows");
  if (!recipe.data.eval.empty()) return recipe.data.eval;
  if (recipe.data.eval_share > 0) {
    recipe.data.eval_share = 0;
    recipe.data.eval = write(*inputs.data.eval, 0, inputs.data.eval->size(), "/held-out-rows");
    return "data.eval_share";
  }
  const int64_t rest = std::min(rows, train.size() - rows);
  if (rest == 0) return "";
  recipe.data.eval = write(train, rows, rest, "/held-out-rows");
  return "the " + std::to_string(rest) + " rows behind them";
}

void read_losses(const std::string& path, int64_t steps_per_epoch, SubsetReport& report) {
  std::vector<std::pair<double, double>> steps;  // loss, supervised tokens
  const std::string text = io::read_file(path);
  for (const auto part : std::views::split(text, '\n')) {
    if (part.empty()) continue;  // after the last line
    const io::Json line = io::parse_json({part.begin(), part.end()}, path);
    if (!line.contains("event")) {
      steps.emplace_back(line["loss"].get<double>(), line["supervised_tokens"].get<double>());
    } else if (line["event"] == "eval") {
      report.held_out_last = line["eval_loss"].get<double>();
      if (std::isnan(report.held_out_first)) report.held_out_first = report.held_out_last;
    }
  }
  report.steps = static_cast<int64_t>(steps.size());
  if (steps.empty()) return;
  report.first = steps.front().first;
  double sum = 0, tokens = 0;
  for (size_t i = steps.size() - std::min(steps.size(), static_cast<size_t>(steps_per_epoch));
       i < steps.size(); ++i) {
    sum += steps[i].first * steps[i].second;
    tokens += steps[i].second;
  }
  report.last = sum / tokens;
}

std::string fixed(double value) { return format_number(value, "%.4f"); }

}  // namespace

SubsetReport train_subset(const recipe::Recipe& asked, int64_t rows) {
  recipe::Recipe recipe = asked;
  recipe.output_dir += "/debug-subset-" + std::to_string(rows);
  SubsetReport report{.output_dir = recipe.output_dir, .held_out = {}};
  {
    const train::RunInputs inputs = train::open_inputs(recipe);
    report.rows = std::min(rows, inputs.data.train->size());
    report.held_out = take_rows(inputs, report.rows, recipe);
    train::settle_accumulation(recipe, report.rows);
  }
  report.code = train::train(recipe);
  if (report.code != 0) return report;
  const int64_t group = recipe.train.batch_size * recipe.train.grad_accum;
  read_losses(recipe.output_dir + "/metrics.jsonl", (report.rows + group - 1) / group, report);
  return report;
}

std::vector<std::string> subset_lines(const SubsetReport& report) {
  std::vector<std::string> lines = {"train loss " + fixed(report.first) + " at the first step, " +
                                    fixed(report.last) + " over the last epoch (" +
                                    std::to_string(report.rows) + " rows, " +
                                    std::to_string(report.steps) + " steps)"};
  if (report.held_out.empty()) {
    lines.push_back("held-out   none: there is no data.eval, and no row is left");
  } else {
    const bool several = report.held_out_first != report.held_out_last;
    lines.push_back(
        "held-out   " + (several ? fixed(report.held_out_first) + " at first, " : std::string()) +
        fixed(report.held_out_last) + " at the end (" + escape_text(report.held_out) + ")");
  }
  if (!(report.last < report.first))
    lines.push_back(
        "the loss did not fall: lft debug overfit and lft debug bare look for the reason");
  return lines;
}

}  // namespace lft::debug
