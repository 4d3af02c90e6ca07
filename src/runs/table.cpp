#include "src/runs/table.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>

#include "src/base/bar.h"
#include "src/base/errors.h"
#include "src/base/terminal.h"
#include "src/base/text.h"
#include "src/io/files.h"
#include "src/io/json.h"
#include "src/report/figure_text.h"

namespace lft::runs {
namespace {

using Json = nlohmann::ordered_json;
using Row = std::array<std::string, 5>;
constexpr int64_t kWidth = 80;  // of a terminal without a known width
constexpr size_t kMaxValue = 40, kMaxIncidents = 5;

std::string steps_text(const RunInfo& run) {
  const report::RunMetrics& m = run.metrics;
  return std::to_string(m.step) + (m.total_steps > 0 ? "/" + std::to_string(m.total_steps) : "");
}

std::string value_text(double value) { return format_number(value, "%.4f"); }

std::string best_text(const RunInfo& run, const Figure& figure) {
  const std::optional<BestEval> best = best_eval(run, figure);
  return best ? value_text(best->value) + " @" + std::to_string(best->step) : "-";
}

std::string fields_text(const Fields& fields) {
  std::vector<std::string> parts;
  for (const auto& [key, value] : fields)
    parts.push_back(key + "=" +
                    (value.size() > kMaxValue ? value.substr(0, kMaxValue) + "..." : value));
  return join(parts, " ");
}

std::string padded(const std::string& text, size_t width) {
  return text + std::string(width > text.size() ? width - text.size() : 0, ' ');
}

std::string human(const std::string& figure) {
  std::string text = figure;
  std::ranges::replace(text, '_', ' ');
  return text;
}

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

/// Adds "label  text", with continuations below the text.
void put(std::vector<std::string>& lines, const std::string& label, const std::string& text) {
  constexpr size_t kLabel = 11;
  lines.push_back(padded(label, kLabel) + text);
}

std::string eval_text(const report::RunEval& eval) {
  std::string text = "step " + std::to_string(eval.step) + ": eval loss " + value_text(eval.loss);
  return text + report::figures_text(eval.figures);
}

/// Seconds since the newest line of metrics; negative without one.
double silence(const RunInfo& run) {
  struct stat info {};
  if (stat((run.path + "/metrics.jsonl").c_str(), &info) != 0) return -1;
  return std::difftime(std::time(nullptr), info.st_mtime);
}

void put_progress(const RunInfo& run, std::vector<std::string>& lines) {
  const report::RunMetrics& m = run.metrics;
  std::string step = steps_text(run);
  if (m.total_steps > 0) {
    step += " (" +
            format_number(100.0 * static_cast<double>(m.step) / static_cast<double>(m.total_steps),
                          "%.0f%%)");
  }
  if (m.step == 0 && run.state == State::kRunning) step += ", before the first step";
  put(lines, "step", step);
  if (m.step == 0) return;
  put(lines, "loss",
      value_text(m.loss) + "  grad " + format_number(m.grad_norm) + "  lr " +
          format_number(m.lr, "%.2g"));
  std::string time = duration_text(std::round(m.seconds)) + " so far";
  if (std::isfinite(m.step_s))
    time = format_number(m.step_s, "%.3g s a step, ") + format_number(m.tokens_per_s, "%.0f") +
           " tokens/s, " + time;
  if (m.total_steps > m.step && run.state == State::kRunning) {
    const double rest =
        m.seconds / static_cast<double>(m.step) * static_cast<double>(m.total_steps - m.step);
    time += ", about " + duration_text(std::round(rest)) + " left";
  }
  put(lines, "time", time);
}

void put_evaluations(const RunInfo& run, std::vector<std::string>& lines) {
  const report::RunMetrics& m = run.metrics;
  if (m.evals.empty()) return;
  put(lines, "evaluation", eval_text(m.evals.back()));
  const Figure figure = figure_of(run);
  if (const std::optional<BestEval> best = best_eval(run, figure);
      best && best->step != m.evals.back().step)
    put(lines, "best",
        "step " + std::to_string(best->step) + ": " + human(figure.name) + " " +
            value_text(best->value));
}

void put_incidents(const RunInfo& run, std::vector<std::string>& lines) {
  const std::vector<report::RunIncident>& all = run.metrics.incidents;
  const size_t first = all.size() > kMaxIncidents ? all.size() - kMaxIncidents : 0;
  for (size_t i = first; i < all.size(); ++i) {
    put(lines, i == first ? "incidents" : "",
        "step " + std::to_string(all[i].step) + ": " + all[i].event +
            (all[i].what.empty() ? "" : ": " + escape_text(all[i].what)));
  }
  if (first > 0) put(lines, "", "and " + std::to_string(first) + " earlier ones");
}

/// Paths of a recipe are relative to the folder in which the run was started.
std::string resume_command(const RunInfo& run) {
  const std::string& folder = run.metrics.folder;
  const bool elsewhere = !folder.empty() && folder != io::absolute_path(".");
  const std::string path = elsewhere && run.recipe ? run.recipe->output_dir : run.path;
  return (elsewhere ? "cd " + shell_word(folder) + " && " : "") + "lft train " +
         shell_word(path + "/recipe.resolved.yaml") + " --resume";
}

void put_commands(const RunInfo& run, std::vector<std::string>& lines) {
  const std::string path = shell_word(run.path);
  if (!run.product.empty() && run.state != State::kRunning) {
    put(lines, "chat", "lft generate " + path);
    if (run.recipe && (!run.recipe->data.eval.empty() || run.recipe->data.eval_share > 0))
      put(lines, "evaluate", "lft eval " + path);
  }
}

}  // namespace

std::vector<std::string> runs_table(const std::vector<RunInfo>& runs) {
  const Figure figure = common_figure(runs);
  const std::vector<Fields> fields = differing_fields(runs);
  std::vector<Row> rows = {{"run", "state", "steps", "best " + human(figure.name), "time"}};
  for (const RunInfo& run : runs)
    rows.push_back({escape_text(run.path), state_word(run.state), steps_text(run),
                    best_text(run, figure), duration_text(std::round(run.metrics.seconds))});
  std::array<size_t, 5> widths{};
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  size_t width = 0, longest = 0;
  for (const size_t each : widths) width += each + 2;
  for (const Fields& each : fields) longest = std::max(longest, fields_text(each).size());
  const bool fits = width + longest <= static_cast<size_t>(kWidth);
  std::vector<std::string> lines;
  for (size_t i = 0; i < rows.size(); ++i) {
    std::string line;
    for (size_t c = 0; c < widths.size(); ++c) line += padded(rows[i][c], widths[c] + 2);
    const std::string changed =
        i == 0 ? (longest > 0 && fits ? "changed" : "") : fields_text(fields[i - 1]);
    if (fits) line += changed;
    lines.push_back(line.substr(0, line.find_last_not_of(' ') + 1));
    if (!fits && !changed.empty())
      lines.push_back("  " + fold("  " + changed, kWidth - 2).substr(2));
  }
  return lines;
}

Json run_json(const RunInfo& run, const Fields& changed) {
  const report::RunMetrics& m = run.metrics;
  const Figure figure = figure_of(run);
  Json json = {{"path", run.path},
               {"state", state_word(run.state)},
               {"step", m.step},
               {"total_steps", m.total_steps > 0 ? Json(m.total_steps) : Json(nullptr)},
               {"seconds", m.seconds},
               {"loss", number(m.loss)},
               {"lr", number(m.lr)},
               {"tokens_per_s", number(m.tokens_per_s)},
               {"best", nullptr},
               {"last_eval", nullptr},
               {"saved_step", m.saved_step >= 0 ? Json(m.saved_step) : Json(nullptr)},
               {"output", run.product.empty() ? Json(nullptr) : Json(run.product)},
               {"seed", run.recipe ? Json(run.recipe->train.seed) : Json(nullptr)},
               {"incidents", Json::array()},
               {"changed", Json::object()}};
  if (const std::optional<BestEval> best = best_eval(run, figure))
    json["best"] = {{"figure", figure.name}, {"value", best->value}, {"step", best->step}};
  if (!m.evals.empty()) {
    json["last_eval"] = {{"step", m.evals.back().step}, {"eval_loss", number(m.evals.back().loss)}};
    for (const auto& [name, value] : m.evals.back().figures)
      json["last_eval"][name] = number(value);
  }
  for (const report::RunIncident& incident : m.incidents)
    json["incidents"].push_back(
        {{"step", incident.step}, {"event", incident.event}, {"what", incident.what}});
  for (const auto& [key, value] : changed) json["changed"][key] = value;
  if (!run.owner.empty()) json["owner"] = run.owner;
  if (!m.failed.empty()) json["reason"] = m.failed;
  return json;
}

Json runs_json(const std::vector<RunInfo>& runs) {
  const std::vector<Fields> fields = differing_fields(runs);
  Json list = Json::array();
  for (size_t i = 0; i < runs.size(); ++i) list.push_back(run_json(runs[i], fields[i]));
  return {{"runs", std::move(list)}};
}

std::vector<std::string> best_lines(const std::vector<RunInfo>& runs, size_t best) {
  const RunInfo& run = runs[best];
  const Figure figure = common_figure(runs);
  const std::optional<BestEval> eval = best_eval(run, figure);
  const auto evaluated = std::ranges::count_if(
      runs, [&](const RunInfo& each) { return best_eval(each, figure).has_value(); });
  std::vector<std::string> lines;
  put(lines, "run", escape_text(run.path) + " (" + state_word(run.state) + ")");
  put(lines, "best",
      human(figure.name) + " " + value_text(eval->value) + " at step " +
          std::to_string(eval->step) + ", the " + (figure.higher ? "highest" : "lowest") + " of " +
          std::to_string(evaluated) + (evaluated == 1 ? " run" : " runs"));
  if (const std::string changed = fields_text(differing_fields(runs)[best]); !changed.empty())
    put(lines, "changed", changed);
  if (!run.product.empty()) {
    const bool other = run.metrics.saved_step >= 0 && run.metrics.saved_step != eval->step;
    put(lines, "output",
        escape_text(run.product) + (other ? " (of step " + std::to_string(run.metrics.saved_step) +
                                                "; train.keep_best keeps the best step)"
                                          : ""));
  }
  put_commands(run, lines);
  return lines;
}

std::vector<std::string> status_lines(const RunInfo& run) {
  std::vector<std::string> lines;
  put(lines, "run", escape_text(run.path));
  std::string state = state_word(run.state);
  if (!run.owner.empty()) state += ": " + escape_text(run.owner);
  if (run.state == State::kFailed) state += ": " + escape_text(run.metrics.failed, 400);
  if (const double quiet = silence(run); run.state == State::kRunning && quiet >= 0)
    state += "; last line of metrics " + duration_text(quiet) + " ago";
  put(lines, "state", state);
  put_progress(run, lines);
  put_evaluations(run, lines);
  put_incidents(run, lines);
  if (!run.product.empty()) put(lines, "output", escape_text(run.product));
  if (run.state == State::kStopped || run.state == State::kFailed)
    put(lines, "resume", resume_command(run));
  put_commands(run, lines);
  return lines;
}

}  // namespace lft::runs
