#include "src/report/report.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <set>

#include "kernels/common/error.h"
#include "src/base/text.h"
#include "src/io/files.h"
#include "src/io/json.h"
#include "src/report/assets.h"
#include "src/report/curves.h"
#include "src/report/figure_text.h"
#include "src/report/html.h"
#include "src/report/layer_map.h"
#include "src/report/picture.h"
#include "src/report/read_metrics.h"
#include "src/report/series.h"
#include "src/report/verdict_pairs.h"

namespace lft::report {
namespace {

constexpr size_t kMaxRows = 200;        // of failures, and of other events
constexpr size_t kMaxEvaluations = 50;  // evaluations whose answers are shown for a row
constexpr double kSlowestWrite = 60;    // seconds between two versions of the page

Metrics metrics_of(const ReportInput& input) {
  const std::string& path = input.metrics_path;
  if (path.empty()) return read_metrics(input.metrics_text, path);
  return io::path_exists(path) ? read_metrics(io::read_file(path), path) : Metrics{};
}

/// [[step, value], ...]; non-finite values are null.
io::Json series_json(const Series& series) {
  io::Json out = io::Json::array();
  for (const Point& point : series)
    out.push_back(
        io::Json::array({point.x, std::isfinite(point.y) ? io::Json(point.y) : io::Json(nullptr)}));
  return out;
}

/// Shown in the curves at its step.
bool is_mark(const std::string& event) {
  static const std::set<std::string> kMarks = {"fp32_recovery",   "step_skipped",
                                               "stopped",         "norm_warning",
                                               "eval_not_finite", "nothing_learnt"};
  return kMarks.contains(event);
}

bool is_alarm(const std::string& event) {
  static const std::set<std::string> kOthers = {
      "warning",        "images_unseen",           "memory_grows",     "memory_spared",
      "sample_skipped", "likelihood_displacement", "accuracy_at_half", "first_loss_differs"};
  return is_mark(event) || kOthers.contains(event);
}

/// For an event with sentences in `what` and `next`, no other fields are shown.
bool is_shown(const io::Json& event, const std::string& key) {
  if (key == "event" || key == "step" || key == "image") return false;
  return !event.contains("what") || !event.contains("next") || key == "what" || key == "next";
}

/// The image of the row that caused the event, if the event names its file.
std::string event_image(const io::Json& event) {
  const auto image = event.find("image");
  return image != event.end() && image->is_string()
             ? image_url(picture_of_file(image->get<std::string>()))
             : "";
}

/// The rows of the table. Many checkpoints must not displace the recovery, nor the other way round.
void put_events(const Metrics& metrics, io::Json* data) {
  io::Json rows = io::Json::array(), marks = io::Json::array();
  size_t calm = 0, alarms = 0;
  for (const io::Json& event : metrics.events) {
    const std::string name =
        event["event"].is_string() ? event["event"].get<std::string>() : event["event"].dump();
    const bool alarm = is_alarm(name);
    if ((alarm ? alarms : calm)++ >= kMaxRows) continue;
    if (is_mark(name)) marks.push_back(event["step"]);
    io::Json fields = io::Json::array();
    for (const auto& [key, value] : event.items()) {
      if (is_shown(event, key)) fields.push_back(io::Json::array({key, value}));
    }
    rows.push_back({{"step", event["step"]},
                    {"name", name},
                    {"alarm", alarm},
                    {"fields", fields},
                    {"image", event_image(event)}});
  }
  (*data)["hidden_events"] = metrics.events.size() - rows.size();
  (*data)["events"] = std::move(rows);
  (*data)["alarms"] = std::move(marks);
}

/// The image is shown next to the question, so its placeholder is removed from the text.
std::string without_image_marks(std::string text) {
  constexpr std::string_view kMark = "<image>";
  for (size_t at = text.find(kMark); at != std::string::npos; at = text.find(kMark))
    text.erase(at, kMark.size());
  return std::string(trimmed(text));
}

/// [[step, answer], ...] of a row, sampled evenly if there are many.
io::Json answers_by_step(const Metrics& metrics, const std::string& id) {
  io::Json all = io::Json::array(), some = io::Json::array();
  for (const auto& [step, answers] : metrics.answers) {
    for (const io::Json& each : answers) {
      if (each.is_object() && each.value("id", io::Json()) == id && each.contains("answer"))
        all.push_back(io::Json::array({step, each["answer"]}));
    }
  }
  const size_t count = std::min(all.size(), kMaxEvaluations);
  for (size_t i = 0; i < count; ++i) some.push_back(all[(i + 1) * all.size() / count - 1]);
  return some;
}

/// [time, log-probability of the chosen answer, of the rejected one, margin].
io::Json pair_row(const std::string& time, const PairFigures& figures) {
  const auto known = [](double value) {
    return std::isfinite(value) ? io::Json(value) : io::Json(nullptr);
  };
  return {time, known(figures.chosen), known(figures.rejected), known(figures.margin)};
}

/// A pair's figures before training, after each evaluation (sampled evenly if there are many) and
/// after training, and whether the last margin is above 0.
void put_pair(const ReportAnswer& one, const Metrics& metrics, io::Json* json) {
  const auto number = [](const io::Json& value) {
    return value.is_number() ? value.get<double>() : std::nan("");
  };
  std::vector<std::pair<int64_t, PairFigures>> all;
  for (const auto& [step, answers] : metrics.answers) {
    for (const io::Json& each : answers) {
      if (!each.is_object() || each.value("id", io::Json()) != one.id || !each.contains("pair"))
        continue;
      const io::Json& pair = each["pair"];
      if (pair.is_array() && pair.size() == 3)
        all.emplace_back(step, PairFigures{number(pair[0]), number(pair[1]), number(pair[2])});
    }
  }
  const bool ended = std::isfinite(one.pair->after.chosen);
  if (ended && !all.empty() && all.back().first == metrics.last_step()) all.pop_back();
  io::Json rows = io::Json::array();
  if (std::isfinite(one.pair->before.chosen)) rows.push_back(pair_row("before", one.pair->before));
  const size_t count = std::min(all.size(), kMaxEvaluations);
  for (size_t i = 0; i < count; ++i) {
    const auto& [step, figures] = all[(i + 1) * all.size() / count - 1];
    rows.push_back(pair_row("step " + std::to_string(step), figures));
  }
  if (ended) rows.push_back(pair_row("after", one.pair->after));
  const bool judged = ended || count > 0;
  const double margin = ended ? one.pair->after.margin : judged ? all.back().second.margin : 0;
  (*json)["pair"] = {{"rejected", one.pair->rejected}, {"rows", rows}, {"judged", judged}};
  (*json)["right"] = margin > 0;
}

/// The current answer of a row, or that of the last evaluation.
io::Json answer_json(const ReportAnswer& one, const Metrics& metrics) {
  const bool has_image = !one.image_png.empty() || !one.note.empty();
  io::Json json = {{"id", one.id},
                   {"question", has_image ? without_image_marks(one.question) : one.question},
                   {"reference", one.reference},
                   {"answer", one.answer},
                   {"before", one.before ? io::Json(*one.before) : io::Json()},
                   {"evaluations", answers_by_step(metrics, one.id)},
                   {"note", one.note},
                   {"image", image_url(one.image_png)}};
  io::Json& evaluations = json["evaluations"];
  if (!one.answered) {
    json["answer"] = evaluations.empty() ? io::Json() : evaluations.back()[1];
    if (!evaluations.empty()) json["answered_at"] = evaluations.back()[0];
  }
  // The last evaluation is shown once.
  if (!evaluations.empty() && evaluations.back()[1] == json["answer"] &&
      (!one.answered || evaluations.back()[0] == metrics.last_step()))
    evaluations.erase(evaluations.size() - 1);
  const io::Json& answer = json["answer"];
  json["right"] =
      answer.is_string() && trimmed(answer.get_ref<const std::string&>()) == trimmed(one.reference);
  if (one.pair) put_pair(one, metrics, &json);
  return json;
}

std::string under_line(const Metrics& metrics) {
  std::string text =
      metrics.steps.empty() ? "no step recorded" : std::to_string(metrics.steps.size()) + " steps";
  if (!metrics.steps.empty()) {
    const auto precision = metrics.steps.rbegin()->second.find("precision");
    if (precision != metrics.steps.rbegin()->second.end() && precision->is_string())
      text += " · computed in " + precision->get<std::string>();
  }
  if (metrics.unreadable > 0)
    text +=
        " · " + std::to_string(metrics.unreadable) + " lines of metrics.jsonl could not be read";
  return text;
}

io::Json facts_json(const ReportFacts& facts) {
  io::Json json = io::Json::array();
  for (const auto& [name, value] : facts) json.push_back(io::Json::array({name, value}));
  return json;
}

double sum_of(const Metrics& metrics, const char* key) {
  double sum = 0;
  for (const Point& point : series_of(metrics, key)) sum += std::isfinite(point.y) ? point.y : 0;
  return sum;
}

/// "1:08", "2:03:11".
std::string time_text(double seconds) {
  const auto all = static_cast<int64_t>(std::llround(seconds));
  const auto two = [](int64_t number) { return (number < 10 ? "0" : "") + std::to_string(number); };
  const std::string end = ":" + two(all % 60);
  return all < 3600 ? std::to_string(all / 60) + end
                    : std::to_string(all / 3600) + ":" + two(all / 60 % 60) + end;
}

/// The facts of a run that are in its metrics.
void add_run(const RunEnd& end, const Metrics& metrics, io::Json* data) {
  const Verdict verdict = judge_run(metrics, end);
  constexpr const char* kStates[] = {"running", "finished", "stopped", "failed"};
  (*data)["state"] = kStates[static_cast<int>(end.state)];
  (*data)["verdict"] = {{"kind", verdict.kind}, {"text", verdict.sentence}};
  (*data)["total_steps"] = std::max(end.total_steps, metrics.last_step());
  const double steps_s = sum_of(metrics, "step_s"),
               all = steps_s + sum_of(metrics, "eval_s") + sum_of(metrics, "checkpoint_s");
  const auto count = static_cast<double>(metrics.steps.size());
  std::string time = time_text(all);
  if (count > 0) time += ", " + format_number(steps_s / count, "%.3g s a step");
  const int64_t left = end.total_steps - metrics.last_step();
  if (end.state == RunState::kRunning && count > 0 && left > 0)
    time += ", about " + time_text(static_cast<double>(left) * all / count) + " left";
  (*data)["facts"].push_back(io::Json::array({"time", time}));
  if (const std::string best = best_figure(metrics, end.figure); !best.empty())
    (*data)["facts"].push_back(io::Json::array({"best figure", best}));
  if (of_preferences(metrics)) {
    const auto [name, text] = preferred_fact(metrics);
    (*data)["facts"].push_back(io::Json::array({name, text}));
  }
  if (!end.answered.empty())
    (*data)["facts"].push_back(io::Json::array({"answered exactly", end.answered}));
  double slowest = kSlowestWrite;
  for (const char* key : {"step_s", "eval_s", "checkpoint_s"}) {
    for (const Point& point : series_of(metrics, key))
      if (point.y > slowest) slowest = point.y;
  }
  (*data)["slowest_s"] = slowest;
}

/// The accuracy of each step, without those at the reference, whose rewards are 0 up to rounding.
Series known_accuracy(const Metrics& metrics) {
  const Series chosen = series_of(metrics, "rewards_chosen"),
               rejected = series_of(metrics, "rewards_rejected");
  Series known, all = series_of(metrics, "reward_accuracy");
  for (size_t i = 0; i < all.size(); ++i)
    if (!is_zero_reward(chosen[i].y) || !is_zero_reward(rejected[i].y)) known.push_back(all[i]);
  return known;
}

/// Curves of an objective's figures: of the steps smoothed, and of the evaluations.
void put_preferences(const Metrics& metrics, io::Json* series) {
  for (const std::string key : {"rewards_chosen", "rewards_rejected", "reward_margin",
                                "reward_accuracy", "logps_chosen", "logps_rejected"}) {
    const Series steps =
        key == "reward_accuracy" ? known_accuracy(metrics) : series_of(metrics, key.c_str());
    (*series)[key] = series_json(thin(smooth(steps), kMaxPoints));
    (*series)["held-out " + key] = series_json(thin(eval_series(metrics, key), kMaxPoints));
  }
}

io::Json page_data(const ReportInput& input, const Metrics& metrics) {
  const Series loss = series_of(metrics, "loss");
  const Series eval = eval_series(metrics, "eval_loss");
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  io::Json data = {{"under", under_line(metrics)},          {"recipe", input.recipe_text},
                   {"environment", input.environment_json}, {"state", ""},
                   {"written", std::floor(now.count())},    {"facts", facts_json(input.facts)},
                   {"details", facts_json(input.details)}};
  if (input.end) add_run(*input.end, metrics, &data);
  data["series"] = {{"loss", series_json(thin(loss, kMaxPoints))},
                    {"loss_smooth", series_json(thin(smooth(loss), kMaxPoints))},
                    {"eval_loss", series_json(thin(eval, kMaxPoints))}};
  for (const char* key : {"lr", "grad_norm", "tokens_per_s"})
    data["series"][key] = series_json(thin(series_of(metrics, key), kMaxPoints));
  for (const auto& [group, series] : series_by_name(metrics, "lrs"))
    data["series"]["lr " + group] = series_json(thin(series, kMaxPoints));
  for (const auto& [source, series] : series_by_name(metrics, "losses"))
    data["series"]["loss of " + source] = series_json(thin(smooth(series), kMaxPoints));
  for (const char* key : {"expert_load", "experts_unused", "balance_loss"}) {
    if (!finite_series(metrics, key).empty())
      data["series"][key] = series_json(thin(series_of(metrics, key), kMaxPoints));
  }
  if (of_preferences(metrics)) put_preferences(metrics, &data["series"]);
  data["layers"] = io::Json::object();
  for (const auto& [event, records] : metrics.layers) data["layers"][event] = layer_map(records);
  const int64_t last = metrics.steps.empty() ? 1 : metrics.steps.rbegin()->first;
  const double first =
      eval.empty() ? 1 : std::min(1.0, eval.front().x);  // an eval before step 1 is at 0
  data["steps"] = io::Json::array({first, std::max<int64_t>(last, 2)});
  put_events(metrics, &data);
  data["answers"] = io::Json::array();
  for (const ReportAnswer& one : input.answers)
    data["answers"].push_back(answer_json(one, metrics));
  data["answers_of"] = input.answers_of;
  return data;
}

/// JSON for a script element: it contains no "<", so neither </script> nor <!-- can occur.
std::string script_json(const io::Json& data) {
  const std::string text = io::json_text(data);
  std::string out;
  out.reserve(text.size() + text.size() / 16);
  for (const char c : text) {
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
  return out;
}

/// Replaces each {{name}} of the page once; inserted text is not searched.
std::string fill_page(std::string_view page,
                      const std::map<std::string, std::string_view, std::less<>>& parts) {
  std::string out;
  for (size_t at = 0; at < page.size();) {
    const size_t open = std::min(page.find("{{", at), page.size());
    out += page.substr(at, open - at);
    if (open == page.size()) break;
    const size_t close = page.find("}}", open);
    out += parts.at(std::string(page.substr(open + 2, close - open - 2)));
    at = close + 2;
  }
  return out;
}

}  // namespace

void write_report(const std::string& path, const ReportInput& input) {
  const ReportAssets assets = report_assets();
  const std::string data = script_json(page_data(input, metrics_of(input)));
  const std::string title = html_text(input.title.empty() ? "Training report" : input.title);
  io::write_file_atomic(path, fill_page(assets.page, {{"title", title},
                                                      {"data", data},
                                                      {"chart_js", assets.chart_js},
                                                      {"charts_js", assets.charts_js},
                                                      {"report_js", assets.report_js}}));
}

}  // namespace lft::report
