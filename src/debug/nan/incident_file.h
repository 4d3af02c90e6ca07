// The fields of incident.json that a replay reads, as plain data.
#pragma once
#include <ATen/core/Tensor.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "src/io/json.h"

namespace lft::debug {

struct Incident {
  struct Row {
    std::string id;
    int64_t index = -1, tokens = 0, supervised = 0;
    size_t micro = 0;
    std::vector<int64_t> answer = {};  // for an evaluation: ids generated after the prompt
    bool answering = false;            // the value that was not finite followed them
    double reference = NAN;            // NaN: the objective uses none
  };
  std::string path;  // of incident.json
  int64_t step = 0, epoch = 0;
  uint64_t seed = 0;
  at::ScalarType compute = at::kFloat;
  double loss = NAN, loss_scale = 1;  // loss: NaN if it was not finite
  double kl = 0;                      // NaN if it was not finite; 0: the objective uses none
  std::string reason;
  std::vector<Row> rows;
  int64_t evaluated = 0;          // above 0: rows of data.eval, of which this many were evaluated
  io::Json identity;              // of the model and data; null: not written by an older lft
  std::string trainables_sha256;  // empty in that case, too
};

/// kInput for an incident that does not fit the model or data of the replay.
[[noreturn]] void refuse_incident(const std::string& where, const std::string& what,
                                  const std::string& found, const std::string& expected);
/// The same for a file of the incident whose content is not valid.
[[noreturn]] void damaged(const std::string& where, const std::string& found,
                          const std::string& expected);
/// Reads incident.json of the directory. kInput with the field if it is invalid.
Incident read_incident(const std::string& dir);
/// The same for the text of a file.
Incident parse_incident(const io::Json& json, const std::string& path);

}  // namespace lft::debug
