// incident.json of a step or an evaluation that was not finite, as far as a replay reads it. Plain
// data.
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
    std::vector<int64_t> answer = {};  // of an evaluation: ids drawn after the prompt
    bool answering = false;            // what was not finite came after them
  };
  std::string path;  // of incident.json
  int64_t step = 0, epoch = 0;
  uint64_t seed = 0;
  at::ScalarType compute = at::kFloat;
  double loss = NAN, loss_scale = 1;  // loss: NaN where it was not finite
  std::string reason;
  std::vector<Row> rows;
  int64_t evaluated = 0;          // above 0: rows of data.eval, of this many that were evaluated
  io::Json identity;              // of what it ran on; null: an older lft wrote no such thing
  std::string trainables_sha256;  // empty, too
};

/// kInput, for an incident that does not fit what it is replayed over.
[[noreturn]] void refuse_incident(const std::string& where, const std::string& what,
                                  const std::string& found, const std::string& expected);
/// Reads incident.json of the folder. kInput, naming the field, for what no run wrote.
Incident read_incident(const std::string& dir);
/// The same of a file's text.
Incident parse_incident(const io::Json& json, const std::string& path);

}  // namespace lft::debug
