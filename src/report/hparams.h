// Summaries of TensorBoard's HParams plugin: a run's hyper-parameters, and how it ended.
#pragma once
#include <string>
#include <variant>
#include <vector>

namespace lft::report {

struct HParam {
  std::string name;
  std::variant<double, std::string> value;
};

/// tensorboard.Summary messages. `metrics`: tags of the scalars that the table shows. Times are
/// seconds since 1970.
std::string hparams_experiment(const std::vector<HParam>& params,
                               const std::vector<std::string>& metrics, double now);
std::string hparams_start(const std::vector<HParam>& params, double now);
std::string hparams_end(bool success, double now);

}  // namespace lft::report
