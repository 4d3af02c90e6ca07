#include "src/report/run_metrics.h"

#include <algorithm>
#include <deque>
#include <string_view>

#include "src/io/files.h"
#include "src/io/json.h"

namespace lft::report {
namespace {

constexpr size_t kLastSteps = 10;  // that the rates are means of

double number_at(const io::Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? found->get<double>() : NAN;
}

double seconds_at(const io::Json& line, const char* key) {
  const double value = number_at(line, key);
  return std::isfinite(value) ? value : 0;
}

std::string text_at(const io::Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_string() ? found->get<std::string>() : "";
}

RunEval eval_of(const io::Json& line, int64_t step) {
  RunEval eval{.step = step, .loss = number_at(line, "eval_loss")};
  for (const auto& [key, value] : line.items()) {
    const bool own = key == "event" || key == "step" || key == "samples" || key == "eval_loss";
    if (!own && value.is_number()) eval.figures.emplace_back(key, value.get<double>());
  }
  return eval;
}

bool is_incident(const std::string& event) {
  return event == "step_skipped" || event == "fp32_recovery" || event == "eval_not_finite" ||
         event == "norm_warning" || event == "memory_grows" || event == "memory_spared" ||
         event == "sample_skipped" || event == "nothing_learnt" || event == "images_unseen" ||
         event == "likelihood_displacement" || event == "accuracy_at_half" ||
         event == "first_loss_differs";
}

class Reader {
 public:
  void take(const io::Json& line) {
    if (!line.is_object()) return;
    const double number = number_at(line, "step");
    if (!std::isfinite(number) || number < 0 || number > 1e15) return;
    const auto step = static_cast<int64_t>(number);
    const std::string event = text_at(line, "event");
    event.empty() ? take_step(line, step) : take_event(line, event, step);
  }

  RunMetrics finish() {
    double step_s = 0, tokens = 0;
    for (const auto& [seconds, count] : last_) {
      step_s += seconds;
      tokens += count;
    }
    if (step_s > 0) {
      run_.step_s = step_s / static_cast<double>(last_.size());
      run_.tokens_per_s = tokens / step_s;
    }
    return std::move(run_);
  }

 private:
  void take_step(const io::Json& line, int64_t step) {
    run_.step = step;
    run_.loss = number_at(line, "loss");
    run_.lr = number_at(line, "lr");
    run_.grad_norm = number_at(line, "grad_norm");
    for (const char* key : {"step_s", "eval_s", "checkpoint_s"})
      run_.seconds += seconds_at(line, key);
    last_.emplace_back(seconds_at(line, "step_s"), seconds_at(line, "tokens"));
    if (last_.size() > kLastSteps) last_.pop_front();
  }

  void take_event(const io::Json& line, const std::string& event, int64_t step) {
    if (event == "start" || event == "resume") {
      const double total = number_at(line, "total_steps");
      run_.total_steps = std::isfinite(total) ? static_cast<int64_t>(total) : 0;
      run_.folder = text_at(line, "folder");
      run_.done = false;
      run_.failed.clear();
    } else if (event == "eval") {
      run_.evals.push_back(eval_of(line, step));
    } else if (event == "done") {
      run_.done = true;
      run_.saved_step = static_cast<int64_t>(seconds_at(line, "saved_step"));
      run_.seconds += seconds_at(line, "eval_s") + seconds_at(line, "checkpoint_s");
    } else if (event == "stopped") {
      run_.failed = text_at(line, "reason");
      if (run_.failed.empty()) run_.failed = "no reason is recorded";
    }
    if (event == "step_skipped") run_.step = std::max(run_.step, step);
    const bool kept = event == "stopped" && !text_at(line, "incident").empty();
    if (!is_incident(event) && !kept) return;
    std::string what;
    for (const char* key : {"what", "reason", "sample"})
      if (what.empty()) what = text_at(line, key);
    run_.incidents.push_back({step, event, what});
  }

  RunMetrics run_;
  std::deque<std::pair<double, double>> last_;  // seconds and tokens of the last steps
};

}  // namespace

double RunEval::value(const std::string& name) const {
  if (name == "eval_loss") return loss;
  const auto found = std::ranges::find(figures, name, &std::pair<std::string, double>::first);
  return found == figures.end() ? NAN : found->second;
}

RunMetrics read_run_metrics(const std::string& path) {
  Reader reader;
  if (!io::path_exists(path)) return reader.finish();
  const std::string text = io::read_file(path);
  for (size_t begin = 0, end = 0; (end = text.find('\n', begin)) != std::string::npos;
       begin = end + 1) {  // an incomplete last line is being written
    reader.take(io::Json::parse(text.begin() + static_cast<int64_t>(begin),
                                text.begin() + static_cast<int64_t>(end), nullptr,
                                /*allow_exceptions=*/false));
  }
  return reader.finish();
}

}  // namespace lft::report
