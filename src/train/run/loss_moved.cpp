#include "src/train/run/loss_moved.h"

#include <cmath>
#include <sstream>

#include "src/base/text.h"
#include "src/io/files.h"
#include "src/io/json.h"
#include "src/train/proof/first_loss.h"

namespace lft::train {
namespace {

constexpr size_t kFewestSteps = 10;
constexpr double kMoved = 0.01, kStandardErrors = 3;
constexpr double kProbeMoved = 1e-3;    // for identical rows, so without sampling noise
constexpr double kLearntBefore = 0.05;  // nats: already learned

struct Part {
  double mean = 0, variance = 0;  // of one value
};

Part part_of(const std::vector<double>& values, size_t begin, size_t count) {
  Part part;
  for (size_t i = begin; i < begin + count; ++i) part.mean += values[i];
  part.mean /= static_cast<double>(count);
  for (size_t i = begin; i < begin + count; ++i)
    part.variance += (values[i] - part.mean) * (values[i] - part.mean);
  part.variance /= static_cast<double>(count - 1);
  return part;
}

/// The proof's loss before step 1, of the tokens; NaN if its file is missing.
double first_probe_loss(const Run& run) {
  const std::string path = run.recipe.output_dir + "/trainability.json";
  if (!io::path_exists(path)) return NAN;
  const io::Json json = io::Json::parse(io::read_file(path), nullptr, /*allow_exceptions=*/false);
  const io::Json::json_pointer loss("/probe/loss");
  return json.is_object() && json.contains(loss) && json[loss].is_number()
             ? json[loss].get<double>()
             : NAN;
}

}  // namespace

std::vector<double> step_losses(const std::string& metrics_path) {
  std::vector<double> losses;
  std::istringstream lines(io::read_file(metrics_path));
  for (std::string line; std::getline(lines, line);) {
    if (line.find("\"loss\"") == std::string::npos) continue;
    const io::Json json = io::Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || json.contains("event")) continue;
    const auto loss = json.find("loss");
    if (loss != json.end() && loss->is_number()) losses.push_back(loss->get<double>());
  }
  return losses;
}

std::string judge_losses(const std::vector<double>& losses) {
  if (losses.size() < kFewestSteps) return "";
  const size_t third = losses.size() / 3;
  const Part first = part_of(losses, 0, third),
             last = part_of(losses, losses.size() - third, third);
  const double error = std::sqrt((first.variance + last.variance) / static_cast<double>(third));
  const double most = std::abs(first.mean - last.mean) + kStandardErrors * error;
  if (first.mean < kLearntBefore || !(most < kMoved * first.mean)) return "";
  return "a mean of " + format_number(first.mean, "%.5g") + " over the first " +
         std::to_string(third) + " steps and " + format_number(last.mean, "%.5g") +
         " over the last; with their scatter it has moved by less than " +
         format_number(100 * most / first.mean, "%.2g") + "%";
}

std::string judge_probe(double before, double after) {
  if (!(before >= kLearntBefore) || !(std::abs(before - after) < kProbeMoved * before)) return "";
  return format_number(before, "%.6g") + " before and " + format_number(after, "%.6g") +
         " after, on the same rows without dropout";
}

std::optional<ErrorInfo> judge_learning(Run& run) {
  const recipe::Recipe& recipe = run.recipe;
  const std::string metrics = recipe.output_dir + "/metrics.jsonl";
  const std::vector<double> losses = step_losses(metrics);
  if (!recipe.lora.init_from.empty() || losses.size() < kFewestSteps) return std::nullopt;
  std::string found = judge_losses(losses);
  if (found.empty() && run.objective->sums_tokens())
    found = judge_probe(first_probe_loss(run), mean_loss(run.model.model, run.probe,
                                                         run.probe.samples, run.state.compute));
  if (found.empty()) return std::nullopt;
  return ErrorInfo{.what = "the loss of the run's own training rows has not moved",
                   .where = "the " + std::to_string(losses.size()) + " steps of " + metrics,
                   .found = found,
                   .expected = "a loss that falls while it trains",
                   .next = "lft debug overfit " +
                           shell_word(recipe.output_dir + "/recipe.resolved.yaml") +
                           " names what keeps it from learning"};
}

}  // namespace lft::train
