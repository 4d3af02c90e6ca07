#include "src/runs/sweep.h"

#include <algorithm>
#include <optional>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/log.h"
#include "src/base/signals.h"
#include "src/base/text.h"
#include "src/io/files.h"
#include "src/recipe/diff.h"
#include "src/recipe/recipe.h"
#include "src/runs/halving.h"
#include "src/runs/runs.h"
#include "src/runs/table.h"

namespace lft::runs {
namespace {

struct PlannedRun {
  Trial trial;
  std::string dir;
  recipe::Recipe recipe;
  int code = 0;          // of its process
  bool dropped = false;  // by halving
};

std::vector<std::string> sets_of(const SweepOptions& options, const PlannedRun& run) {
  std::vector<std::string> sets = options.sets;
  sets.insert(sets.end(), run.trial.sets.begin(), run.trial.sets.end());
  sets.push_back("output_dir=" + run.dir);
  return sets;
}

/// A run that is there must be this run.
void check_same(const PlannedRun& planned) {
  if (!is_run(planned.dir)) return;
  const RunInfo there = read_run(planned.dir);
  if (there.state == State::kRunning) {
    refuse(ErrorKind::kUsage, "a run of this sweep is at work in another process", planned.dir,
           there.owner, {}, "wait for it to end, or give another --out");
  }
  if (!there.recipe) return;
  std::vector<std::string> changes;
  for (const recipe::RecipeChange& change : recipe::changed_fields(*there.recipe, planned.recipe)) {
    const bool settled = change.after == "auto";  // the run's recipe has what it chose
    if (!change.may_change && !settled)
      changes.push_back(change.key + " was " + change.before + ", is now " + change.after);
  }
  if (!changes.empty()) {
    refuse(ErrorKind::kUsage, "the sweep's folder contains a run with other settings", planned.dir,
           join(changes, "\n"), {}, "give another --out, or the settings of that sweep");
  }
}

void check_halving(const PlannedRun& run) {
  const recipe::Recipe& recipe = run.recipe;
  const bool held_out = !recipe.data.eval.empty() || recipe.data.eval_share > 0;
  if (held_out && recipe.train.eval_every_steps > 0) return;
  refuse(ErrorKind::kUsage, "--halve compares runs by their evaluations, and there is none",
         run.dir, held_out ? "train.eval_every_steps: 0" : "no held-out rows",
         "data.eval or data.eval_share, and train.eval_every_steps",
         "add --set train.eval_every_steps=N" +
             std::string(held_out ? "" : " and --set data.eval_share=0.1"));
}

class Sweep {
 public:
  Sweep(const SweepOptions& options, const RunLft& run) : options_(options), run_(run) {
    const std::vector<Trial> trials = trials_of(options.axes);
    out_ = options.out;
    if (out_.empty()) {
      out_ = recipe::read_recipe(options.recipe, options.sets).output_dir;
      while (out_.size() > 1 && out_.ends_with('/')) out_.pop_back();
      out_ += "-sweep";
    }
    for (const Trial& trial : trials) {
      PlannedRun planned{.trial = trial, .dir = out_ + "/" + trial.name, .recipe = {}};
      planned.recipe = recipe::read_recipe(options.recipe, sets_of(options, planned));
      if (options.halve) check_halving(planned);
      check_same(planned);
      runs_.push_back(std::move(planned));
    }
  }

  int run() {
    print_line("sweep      " + std::to_string(runs_.size()) +
               (runs_.size() == 1 ? " run" : " runs") + " below " + escape_text(out_));
    if (options_.halve && runs_.size() > 1) {
      for (size_t i = 0; i < runs_.size(); ++i)
        if (const int code = start(i, /*first_third=*/true); code != 0) return stop(code);
      drop_worse_half();
    }
    for (size_t i = 0; i < runs_.size(); ++i)
      if (const int code = start(i, /*first_third=*/false); code != 0) return stop(code);
    print_table();
    check_failures();
    return 0;
  }

 private:
  /// Runs it unless it is done, or as far as it should go. Returns the exit code of a stopped
  /// process, otherwise 0.
  int start(size_t index, bool first_third) {
    PlannedRun& planned = runs_[index];
    if (planned.dropped || planned.code != 0) return 0;
    const std::string place =
        std::to_string(index + 1) + " of " + std::to_string(runs_.size()) + ": ";
    if (is_run(planned.dir)) {
      const RunInfo there = read_run(planned.dir);
      const recipe::Recipe::Train now = planned.recipe.train,
                                  then = there.recipe.value_or(planned.recipe).train;
      const bool longer = now.max_steps != then.max_steps || now.epochs != then.epochs;
      if (there.metrics.done && !longer) {
        if (first_third || !options_.halve)
          print_line("run        " + place + escape_text(planned.dir) + " is done already");
        return 0;
      }
      if (first_third && there.metrics.step >= rung_of(planned, there)) return 0;
    }
    print_line("run        " + place + escape_text(planned.dir));
    std::vector<std::string> arguments = {"train", options_.recipe, "--resume"};
    for (const std::string& set : sets_of(options_, planned))
      arguments.insert(arguments.end(), {"--set", set});
    if (first_third) arguments.emplace_back("--first-third");
    const int code = run_(arguments);
    if (code == stop_exit_code(2) || code == stop_exit_code(15)) return code;
    if (requested_signal() != 0) return stop_exit_code(requested_signal());
    planned.code = code;
    return 0;
  }

  /// Beyond all steps for a run that does not record its number of steps.
  static int64_t rung_of(const PlannedRun& planned, const RunInfo& info) {
    return info.metrics.total_steps > 0
               ? halving_step(info.metrics.total_steps, planned.recipe.train.eval_every_steps)
               : INT64_MAX;
  }

  void drop_worse_half() {
    struct Place {
      size_t index;
      std::optional<BestEval> eval;
    };
    std::vector<RunInfo> infos = read_all();
    const Figure figure = common_figure(infos);
    std::vector<Place> places;
    for (size_t i = 0, k = 0; i < runs_.size(); ++i) {
      if (!is_run(runs_[i].dir)) continue;
      const RunInfo& info = infos[k++];
      const bool failed = runs_[i].code != 0;
      places.push_back(
          {i, failed ? std::nullopt : best_eval(info, figure, rung_of(runs_[i], info))});
    }
    std::ranges::stable_sort(places, [&](const Place& a, const Place& b) {
      if (!a.eval || !b.eval) return a.eval.has_value() && !b.eval.has_value();
      return better(a.eval->value, b.eval->value, figure);
    });
    const size_t keep = (runs_.size() + 1) / 2;
    std::vector<std::string> dropped;
    for (size_t i = keep; i < places.size(); ++i) {
      PlannedRun& run = runs_[places[i].index];
      if (run.code != 0) continue;
      run.dropped = true;
      dropped.push_back(run.trial.name);
    }
    if (!dropped.empty())
      print_line("halved     after a third of the steps these are worse and stop: " +
                 join(dropped));
  }

  std::vector<RunInfo> read_all() const {
    std::vector<RunInfo> infos;
    for (const PlannedRun& run : runs_)
      if (is_run(run.dir)) infos.push_back(read_run(run.dir));
    return infos;
  }

  void print_table() const {
    const std::vector<RunInfo> infos = read_all();
    if (infos.empty()) return;
    for (const std::string& line : runs_table(infos)) print_line(line);
    if (const auto best = best_run(infos, common_figure(infos))) {
      print_line("");
      for (const std::string& line : best_lines(infos, *best)) print_line(line);
    }
  }

  int stop(int code) const {
    print_table();
    notice(
        "the sweep is stopped: the same command skips the runs that are done and resumes this one");
    return code;
  }

  void check_failures() const {
    std::vector<std::string> failed;
    int first = 0;
    for (const PlannedRun& run : runs_) {
      if (run.code == 0) continue;
      if (first == 0) first = run.code;
      failed.push_back(run.trial.name + " (exit code " + std::to_string(run.code) + ")");
    }
    if (failed.empty()) return;
    const bool known = first >= static_cast<int>(ErrorKind::kInternal) &&
                       first <= static_cast<int>(ErrorKind::kResource);
    refuse(known ? static_cast<ErrorKind>(first) : ErrorKind::kResource,
           std::to_string(failed.size()) + " of " + std::to_string(runs_.size()) +
               " runs of the sweep failed",
           out_, join(failed), {},
           "each run's error is printed above; the same command tries these runs again");
  }

  const SweepOptions& options_;
  const RunLft& run_;
  std::string out_;
  std::vector<PlannedRun> runs_;
};

}  // namespace

int sweep(const SweepOptions& options, const RunLft& run) { return Sweep(options, run).run(); }

}  // namespace lft::runs
