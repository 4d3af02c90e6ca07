#include "src/report/read_metrics.h"

#include <algorithm>
#include <cmath>

#include "kernels/common/error.h"

namespace lft::report {
namespace {

constexpr size_t kMaxGroups = 8;  // of the optimizer, and sources of the data

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

}  // namespace

Metrics read_metrics(const std::string& text, const std::string& path) {
  Metrics metrics;
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

Series eval_series(const Metrics& metrics, const std::string& figure) {
  Series series;
  for (const io::Json& event : metrics.events) {
    const auto value = event.find(figure);
    if (event["event"] == "eval" && value != event.end() && value->is_number())
      series.push_back({event["step"].get<double>(), value->get<double>()});
  }
  return series;
}

const io::Json* last_event(const Metrics& metrics, const std::string& name) {
  for (auto event = metrics.events.rbegin(); event != metrics.events.rend(); ++event) {
    if ((*event)["event"] == name) return &*event;
  }
  return nullptr;
}

}  // namespace lft::report
