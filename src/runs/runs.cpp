#include "src/runs/runs.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/checkpoint/run_lock.h"
#include "src/infer/metrics.h"
#include "src/io/files.h"
#include "src/io/run_folder.h"
#include "src/recipe/diff.h"
#include "src/report/figure_text.h"

namespace lft::runs {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxDepth = 8;  // folders below the given one
constexpr const char* kRecipe = "/recipe.resolved.yaml";

void find_below(const std::string& folder, int depth, std::vector<RunInfo>& found) {
  if (is_run(folder)) return found.push_back(read_run(folder));
  if (depth == kMaxDepth) return;
  for (const std::string& name : io::list_dir(folder)) {
    const std::string path = folder + "/" + name;
    std::error_code code;
    if (name.starts_with('.') || fs::is_symlink(path, code) || !io::is_directory(path)) continue;
    try {
      find_below(path, depth + 1, found);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInput) throw;  // a folder that this user may not read
    }
  }
}

State state_of(const RunInfo& run) {
  if (!run.owner.empty()) return State::kRunning;
  if (run.metrics.done) return State::kDone;
  return run.metrics.failed.empty() ? State::kStopped : State::kFailed;
}

std::string product_in(const std::string& path) {
  for (const std::string& product : {io::adapter_folder(path), io::model_folder(path)})
    if (product != path) return product;
  return "";
}

std::optional<recipe::Recipe> recipe_in(const std::string& path) {
  try {
    return recipe::parse_recipe(io::read_file(path + kRecipe, 1 << 20), path + kRecipe);
  } catch (const Error&) {
    return std::nullopt;  // of another version, or damaged
  }
}

}  // namespace

const char* state_word(State state) {
  switch (state) {
    case State::kRunning:
      return "running";
    case State::kDone:
      return "done";
    case State::kFailed:
      return "failed";
    case State::kStopped:
      return "stopped";
  }
  return "";
}

bool is_run(const std::string& path) {
  return io::is_directory(path) &&
         (io::path_exists(path + kRecipe) || io::path_exists(path + "/metrics.jsonl") ||
          io::path_exists(path + "/trainability.json"));
}

RunInfo read_run(const std::string& path) {
  if (!is_run(path)) {
    refuse(ErrorKind::kUsage, "not the folder of a run", path,
           io::is_directory(path) ? "a folder without recipe.resolved.yaml" : "no such folder",
           "the output_dir of a run", "lft runs DIR lists the runs below a folder");
  }
  RunInfo run{.path = path};
  while (run.path.size() > 1 && run.path.ends_with('/')) run.path.pop_back();
  run.owner = checkpoint::lock_owner(path).value_or("");
  run.metrics = report::read_run_metrics(run.path + "/metrics.jsonl");
  run.recipe = recipe_in(run.path);
  run.product = product_in(run.path);
  run.state = state_of(run);
  return run;
}

std::vector<RunInfo> find_runs(const std::string& folder) {
  if (!io::is_directory(folder)) {
    refuse(ErrorKind::kUsage, "no such folder", folder, {}, "a folder with runs in it",
           "name the folder that contains the output_dir of your runs");
  }
  std::vector<RunInfo> found;
  std::string start = folder;
  while (start.size() > 1 && start.ends_with('/')) start.pop_back();
  find_below(start, 0, found);
  return found;
}

recipe::Recipe read_run_recipe(const std::string& run, const std::vector<std::string>& sets) {
  const std::string file = run + kRecipe;
  if (!io::path_exists(file)) {
    refuse(ErrorKind::kUsage, "a run without its recipe", run, "no recipe.resolved.yaml", {},
           "give the recipe that the run was started with");
  }
  recipe::Recipe recipe = recipe::read_recipe(file, sets);
  const std::string folder = report::read_run_metrics(run + "/metrics.jsonl").folder;
  const auto from_start = [&](const std::string& key, std::string& path) {
    const bool given = std::ranges::any_of(
        sets, [&](const std::string& set) { return set.starts_with(key + "="); });
    if (given || path.empty() || path.starts_with('/') || folder.empty()) return;
    std::error_code code;
    if (fs::equivalent(folder, ".", code)) return;
    if (const std::string there = folder + "/" + path; io::path_exists(there)) path = there;
  };
  recipe.output_dir = run;
  from_start("model.path", recipe.model.path);
  from_start("data.train", recipe.data.train.path);
  for (recipe::Source& source : recipe.data.train.list) {
    from_start("data.train", source.path);
    from_start("data.train", source.image_root);
  }
  from_start("data.eval", recipe.data.eval);
  from_start("data.image_root", recipe.data.image_root);
  from_start("data.template", recipe.data.chat_template);
  from_start("lora.init_from", recipe.lora.init_from);
  return recipe;
}

Figure figure_of(const RunInfo& run) {
  if (!run.recipe) return {};
  const std::string kept = infer::kept_figure(run.recipe->train.keep_best.word());
  return kept.empty() ? Figure{} : Figure{.name = kept, .higher = true};
}

Figure common_figure(const std::vector<RunInfo>& runs) {
  if (runs.empty()) return {};
  const Figure first = figure_of(runs.front());
  const bool agree =
      std::ranges::all_of(runs, [&](const RunInfo& run) { return figure_of(run) == first; });
  return agree ? first : Figure{};
}

bool better(double a, double b, const Figure& figure) { return figure.higher ? a > b : a < b; }

std::optional<BestEval> best_eval(const RunInfo& run, const Figure& figure, int64_t last) {
  std::optional<BestEval> best;
  for (const report::RunEval& eval : run.metrics.evals) {
    const double value = eval.value(figure.name);
    const bool unlike = figure.name != "eval_loss" && report::at_reference(eval.figures);
    if (eval.step > last || !std::isfinite(value) || unlike) continue;
    if (!best || better(value, best->value, figure)) best = {.step = eval.step, .value = value};
  }
  return best;
}

std::optional<size_t> best_run(const std::vector<RunInfo>& runs, const Figure& figure) {
  std::optional<size_t> best;
  double value = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    const std::optional<BestEval> eval = best_eval(runs[i], figure);
    if (!eval || (best && !better(eval->value, value, figure))) continue;
    best = i;
    value = eval->value;
  }
  return best;
}

std::vector<Fields> differing_fields(const std::vector<RunInfo>& runs) {
  std::vector<Fields> fields(runs.size());
  const auto first =
      std::ranges::find_if(runs, [](const RunInfo& run) { return run.recipe.has_value(); });
  if (first == runs.end()) return fields;
  std::vector<std::pair<std::string, std::string>> base;  // keys that differ, with first's value
  std::vector<std::map<std::string, std::string>> changed(runs.size());
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!runs[i].recipe) continue;
    for (const recipe::RecipeChange& change :
         recipe::changed_fields(*first->recipe, *runs[i].recipe)) {
      if (change.key == "output_dir") continue;
      changed[i][change.key] = change.after;
      const std::pair<std::string, std::string> value(change.key, change.before);
      if (std::ranges::find(base, value) == base.end()) base.push_back(value);
    }
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!runs[i].recipe) continue;
    for (const auto& [key, value] : base) {
      const auto other = changed[i].find(key);
      fields[i].emplace_back(key, other == changed[i].end() ? value : other->second);
    }
  }
  return fields;
}

}  // namespace lft::runs
