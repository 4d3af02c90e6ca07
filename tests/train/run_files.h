// Reads a run's output: metrics lines, and the files whose bytes must agree between two runs.
#pragma once
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "src/io/json.h"
#include "train/tiny_run.h"

namespace lft::test {
using namespace lft::io;

inline std::vector<Json> metric_lines(const std::string& dir) {
  std::vector<Json> out;
  std::istringstream text(slurp(dir + "/metrics.jsonl"));
  for (std::string line; std::getline(text, line);) out.push_back(Json::parse(line));
  return out;
}

inline std::vector<Json> step_lines(const std::string& dir) {
  std::vector<Json> steps;
  for (Json& line : metric_lines(dir)) {
    if (!line.contains("event")) steps.push_back(line);
  }
  return steps;
}

inline std::vector<Json> events(const std::string& dir, const std::string& name) {
  std::vector<Json> found;
  for (Json& line : metric_lines(dir)) {
    if (line.value("event", "") == name) found.push_back(line);
  }
  return found;
}

/// Step lines without the two fields that measure time.
inline std::string loss_log(const std::string& dir) {
  std::string log;
  for (Json& line : step_lines(dir)) {
    line.erase("step_s");
    line.erase("tokens_per_s");
    line.erase("eval_s");
    line.erase("checkpoint_s");
    log += line.dump() + "\n";
  }
  return log;
}

/// The data that must be bit-equal in two runs of the same recipe: the adapter, weights and moments
/// the checkpoint at `step`, the losses.
struct RunBytes {
  std::string adapter, weights, moments, losses;
  bool operator==(const RunBytes&) const = default;
};
inline RunBytes run_bytes(const std::string& dir, int64_t step) {
  const std::string checkpoint = dir + "/checkpoints/step-" + std::to_string(step);
  return {slurp(dir + "/adapter/adapter_model.safetensors"),
          slurp(checkpoint + "/trainables.safetensors"),
          slurp(checkpoint + "/optimizer.safetensors"), loss_log(dir)};
}

}  // namespace lft::test
