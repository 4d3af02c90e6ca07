// lft runs: a table of runs, and the best of them. lft status: the progress of one run.
#include "src/runs/runs.h"

#include <cstdio>
#include <memory>

#include "kernels/common/error.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/cli/commands.h"
#include "src/io/files.h"
#include "src/io/json.h"
#include "src/recipe/shipped.h"
#include "src/runs/table.h"

namespace lft::cli {
namespace {

struct RunsArgs {
  std::string folder = "runs";
  bool json = false;
};

/// Not folded on a terminal.
void print_json(const nlohmann::ordered_json& json) {
  std::printf("%s\n", io::json_text(json, 2).c_str());
}

std::vector<runs::RunInfo> runs_below(const std::string& folder) {
  std::vector<runs::RunInfo> found = runs::find_runs(folder);
  if (found.empty())
    refuse(ErrorKind::kUsage, "no run in this folder or below it", folder, {},
           "the output_dir of runs", "lft train RECIPE writes one to the recipe's output_dir");
  return found;
}

void list_runs(const RunsArgs& args) {
  const std::vector<runs::RunInfo> found = runs_below(args.folder);
  if (args.json) return print_json(runs::runs_json(found));
  print_lines(runs::runs_table(found));
}

void show_best(const RunsArgs& args) {
  const std::vector<runs::RunInfo> found = runs_below(args.folder);
  const std::optional<size_t> best = runs::best_run(found, runs::common_figure(found));
  if (!best)
    refuse(ErrorKind::kUsage, "no run has an evaluation", args.folder,
           std::to_string(found.size()) + " without one",
           "data.eval or data.eval_share in a recipe",
           "lft runs " + shell_word(args.folder) + " lists the runs");
  if (args.json)
    return print_json(runs::run_json(found[*best], runs::differing_fields(found)[*best]));
  print_lines(runs::best_lines(found, *best));
}

/// The folder of a run, or the output_dir of a recipe.
std::string run_folder(const std::string& given) {
  return io::is_directory(given) || !io::path_exists(recipe::recipe_file(given))
             ? given
             : recipe::read_recipe(given).output_dir;
}

}  // namespace

void add_runs(Command& app) {
  const auto args = std::make_shared<RunsArgs>();
  Command command = app.subcommand(
      "runs", "list runs: state, steps, best evaluation, time, and how their recipes differ");
  const auto declare = [&](Command& each) {
    each.option("DIR", args->folder, "a run's folder, or a folder with runs in it").show_default();
    each.flag("--json", args->json, "print JSON instead of text");
  };
  declare(command);
  Command best = command.subcommand(
      "best", "the run with the best evaluation, by train.keep_best's metric or else by the loss");
  declare(best);
  best.run([args] { show_best(*args); });
  command.run([args] { list_runs(*args); });
}

void add_status(Command& app) {
  struct Options {
    std::string run;
    bool json = false;
  };
  const auto options = std::make_shared<Options>();
  Command command = app.subcommand(
      "status", "show a run, also while it trains: step, loss, rate, time left, evaluations");
  command.option("RUN", options->run, "a run's folder, or its recipe").required();
  command.flag("--json", options->json, "print JSON instead of text");
  command.run([options] {
    const runs::RunInfo run = runs::read_run(run_folder(options->run));
    if (options->json) return print_json(runs::run_json(run, {}));
    print_lines(runs::status_lines(run));
  });
}

}  // namespace lft::cli
