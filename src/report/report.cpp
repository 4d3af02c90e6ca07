#include "src/report/report.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "kernels/common/error.h"
#include "src/base/text.h"
#include "src/io/files.h"
#include "src/io/json.h"
#include "src/report/assets.h"
#include "src/report/html.h"
#include "src/report/layer_map.h"
#include "src/report/series.h"

namespace lft::report {
namespace {

constexpr size_t kMaxRows = 200;        // of failures, and of other events
constexpr size_t kMaxEvaluations = 50;  // evaluations whose answers are shown for a row
constexpr size_t kMaxGroups = 8;        // of the optimizer, and sources of the data

/// The content of metrics.jsonl. After a resume a step may occur twice: the later line is used.
struct Metrics {
  std::map<int64_t, io::Json> steps;
  std::vector<io::Json> events;
  std::map<std::string, std::map<int64_t, io::Json>> layers =
      {};                                    // records of every layer's norm, by event and step
  std::map<int64_t, io::Json> answers = {};  // to the shown rows, by the step of the evaluation
  int64_t unreadable = 0;
};

bool is_layer_record(const io::Json& line) {
  const auto event = line.find("event"), layers = line.find("layers");
  return event != line.end() &&
         (*event == "layer_grad_norms" || *event == "layer_activation_norms") &&
         layers != line.end() && layers->is_object();
}

bool is_answers(const io::Json& line) {
  const auto event = line.find("event"), answers = line.find("answers");
  return event != line.end() && *event == "eval_answers" && answers != line.end() &&
         answers->is_array();
}

Metrics read_metrics(const ReportInput& input) {
  Metrics metrics;
  const std::string& path = input.metrics_path;
  if (!path.empty() && !io::path_exists(path)) return metrics;
  const std::string text = path.empty() ? input.metrics_text : io::read_file(path);
  for (size_t at = 0, line = 1; at < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', at), text.size());
    try {
      io::Json json = io::parse_json(std::string_view(text).substr(at, end - at),
                                     path + ":" + std::to_string(line));
      const int64_t step = io::json_int(json, "step", 0, INT64_MAX, path);
      if (is_answers(json)) {
        metrics.answers[step] = std::move(json["answers"]);
      } else if (is_layer_record(json)) {
        const std::string event = json["event"];
        metrics.layers[event][step] = std::move(json);
      } else if (json.contains("event")) {
        metrics.events.push_back(std::move(json));
      } else {
        metrics.steps[step] = std::move(json);
      }
    } catch (const Error&) {
      ++metrics.unreadable;  // a killed run may leave an incomplete line
    } catch (const io::Json::exception&) {
      ++metrics.unreadable;
    }
    at = end + 1;
  }
  return metrics;
}

Series series_of(const Metrics& metrics, const char* key) {
  Series series;
  for (const auto& [step, line] : metrics.steps) {
    const auto value = line.find(key);
    const bool number = value != line.end() && value->is_number();
    series.push_back({static_cast<double>(step), number ? value->get<double>() : std::nan("")});
  }
  return series;
}

/// The numbers of an object in each line, by name: "lrs" has groups with a separate learning rate,
/// "losses" the sources.
std::map<std::string, Series> series_by_name(const Metrics& metrics, const char* key) {
  std::map<std::string, Series> named;
  for (const auto& [step, line] : metrics.steps) {
    const auto numbers = line.find(key);
    if (numbers == line.end() || !numbers->is_object()) continue;
    for (const auto& [name, value] : numbers->items()) {
      if (value.is_number() && (named.size() < kMaxGroups || named.contains(name)))
        named[name].push_back({static_cast<double>(step), value.get<double>()});
    }
  }
  return named;
}

Series eval_series(const Metrics& metrics) {
  Series series;
  for (const io::Json& event : metrics.events) {
    const auto value = event.find("eval_loss");
    if (value != event.end() && value->is_number())
      series.push_back({event["step"].get<double>(), value->get<double>()});
  }
  return series;
}

/// [[step, value], ...]; non-finite values are null.
io::Json series_json(const Series& series) {
  io::Json out = io::Json::array();
  for (const Point& point : series)
    out.push_back(
        io::Json::array({point.x, std::isfinite(point.y) ? io::Json(point.y) : io::Json(nullptr)}));
  return out;
}

bool is_alarm(const std::string& event) {
  return event == "fp32_recovery" || event == "step_skipped" || event == "stopped" ||
         event == "norm_warning" || event == "eval_not_finite" || event == "nothing_learnt";
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
             ? image_url(read_image(image->get<std::string>()))
             : "";
}

/// The rows of the table. Many checkpoints must not displace the recovery, nor the other way round.
void put_events(const Metrics& metrics, io::Json* data) {
  io::Json rows = io::Json::array(), alarms = io::Json::array();
  size_t calm = 0;
  for (const io::Json& event : metrics.events) {
    const std::string name =
        event["event"].is_string() ? event["event"].get<std::string>() : event["event"].dump();
    const bool alarm = is_alarm(name);
    if ((alarm ? alarms.size() : calm) >= kMaxRows) continue;
    if (alarm) alarms.push_back(event["step"]);
    if (!alarm) ++calm;
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
  (*data)["alarms"] = std::move(alarms);
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

io::Json answers_json(const std::vector<ReportAnswer>& answers, const Metrics& metrics) {
  io::Json out = io::Json::array();
  for (const ReportAnswer& one : answers) {
    const bool right = trimmed(one.answer) == trimmed(one.reference);
    out.push_back(
        {{"id", one.id},
         {"question", one.image_png.empty() ? one.question : without_image_marks(one.question)},
         {"reference", one.reference},
         {"answer", one.answer},
         {"before", one.before},
         {"evaluations", answers_by_step(metrics, one.id)},
         {"right", right},
         {"image", image_url(one.image_png)}});
  }
  return out;
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

io::Json page_data(const ReportInput& input, const Metrics& metrics) {
  const Series loss = series_of(metrics, "loss");
  const Series eval = eval_series(metrics);
  io::Json data = {{"under", under_line(metrics)},
                   {"recipe", input.recipe_text},
                   {"environment", input.environment_json}};
  data["facts"] = io::Json::array();
  for (const auto& [name, value] : input.facts)
    data["facts"].push_back(io::Json::array({name, value}));
  data["series"] = {{"loss", series_json(thin(loss, kMaxPoints))},
                    {"loss_smooth", series_json(thin(smooth(loss), kMaxPoints))},
                    {"eval_loss", series_json(thin(eval, kMaxPoints))}};
  for (const char* key : {"lr", "grad_norm", "tokens_per_s"})
    data["series"][key] = series_json(thin(series_of(metrics, key), kMaxPoints));
  for (const auto& [group, series] : series_by_name(metrics, "lrs"))
    data["series"]["lr " + group] = series_json(thin(series, kMaxPoints));
  for (const auto& [source, series] : series_by_name(metrics, "losses"))
    data["series"]["loss of " + source] = series_json(thin(smooth(series), kMaxPoints));
  data["layers"] = io::Json::object();
  for (const auto& [event, records] : metrics.layers) data["layers"][event] = layer_map(records);
  const int64_t last = metrics.steps.empty() ? 1 : metrics.steps.rbegin()->first;
  const double first =
      eval.empty() ? 1 : std::min(1.0, eval.front().x);  // an eval before step 1 is at 0
  data["steps"] = io::Json::array({first, std::max<int64_t>(last, 2)});
  put_events(metrics, &data);
  data["answers"] = answers_json(input.answers, metrics);
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
  const std::string data = script_json(page_data(input, read_metrics(input)));
  const std::string title = html_text(input.title.empty() ? "Training report" : input.title);
  io::write_file_atomic(path, fill_page(assets.page, {{"title", title},
                                                      {"data", data},
                                                      {"chart_js", assets.chart_js},
                                                      {"report_js", assets.report_js}}));
}

}  // namespace lft::report
