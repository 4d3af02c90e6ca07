#include "src/report/hparams.h"

#include <string_view>

#include "src/report/protobuf.h"

namespace lft::report {
namespace {

/// Values of tensorboard.hparams.DataType and Status.
constexpr uint64_t kString = 1, kFloat64 = 3, kSuccess = 1, kFailure = 2;

/// Summary{value = [{tag, metadata.plugin_data {"hparams", content}, tensor}]}; the content is
/// HParamsPluginData of version 0 with `message` in its field, the tensor has no elements.
std::string plugin_summary(std::string_view tag, uint64_t field, const std::string& message) {
  std::string content;
  put_bytes(&content, field, message);
  std::string plugin, metadata, shape, tensor, value, summary;
  put_bytes(&plugin, 1, "hparams");
  put_bytes(&plugin, 2, content);
  put_bytes(&metadata, 1, plugin);
  put_bytes(&shape, 2, "");    // one dimension of size 0
  put_integer(&tensor, 1, 1);  // DT_FLOAT
  put_bytes(&tensor, 2, shape);
  put_bytes(&value, 1, tag);
  put_bytes(&value, 8, tensor);
  put_bytes(&value, 9, metadata);
  put_bytes(&summary, 1, value);
  return summary;
}

}  // namespace

std::string hparams_experiment(const std::vector<HParam>& params,
                               const std::vector<std::string>& metrics, double now) {
  std::string experiment;
  put_double(&experiment, 3, now);
  for (const HParam& param : params) {
    std::string info;
    put_bytes(&info, 1, param.name);
    put_integer(&info, 4, std::holds_alternative<double>(param.value) ? kFloat64 : kString);
    put_bytes(&experiment, 4, info);
  }
  for (const std::string& tag : metrics) {
    std::string name, info;
    put_bytes(&name, 2, tag);
    put_bytes(&info, 1, name);
    put_bytes(&experiment, 5, info);
  }
  return plugin_summary("_hparams_/experiment", 2, experiment);
}

std::string hparams_start(const std::vector<HParam>& params, double now) {
  std::string start;
  for (const HParam& param : params) {
    std::string value, entry;  // google.protobuf.Value, and an entry of a map
    if (const double* const number = std::get_if<double>(&param.value)) {
      put_double(&value, 2, *number);
    } else {
      put_bytes(&value, 3, std::get<std::string>(param.value));
    }
    put_bytes(&entry, 1, param.name);
    put_bytes(&entry, 2, value);
    put_bytes(&start, 1, entry);
  }
  put_double(&start, 5, now);
  return plugin_summary("_hparams_/session_start_info", 3, start);
}

std::string hparams_end(bool success, double now) {
  std::string end;
  put_integer(&end, 1, success ? kSuccess : kFailure);
  put_double(&end, 2, now);
  return plugin_summary("_hparams_/session_end_info", 4, end);
}

}  // namespace lft::report
