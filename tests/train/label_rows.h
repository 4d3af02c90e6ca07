// The rows of a TinyRun as labelled rows of KTO.
#pragma once
#include <string>

#include "train/tiny_run.h"

namespace lft::test {

/// Writes labels.json in LLaMA-Factory's form: right answers are desirable, and each third row has
/// a wrong one, which is not. Returns its path.
inline std::string write_labels(const TinyRun& run) {
  nlohmann::json rows = nlohmann::json::parse(slurp(run.dir().file("rows.json")));
  size_t number = 0;
  for (nlohmann::json& row : rows) {
    const bool right = number++ % 3 != 1;
    if (!right) row["conversations"][1]["value"] = "a tree";
    row["kto_tag"] = right;
  }
  return run.dir().write("labels.json", rows.dump());
}

}  // namespace lft::test
