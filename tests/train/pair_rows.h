// The rows of a TinyRun as preference pairs.
#pragma once
#include <string>

#include "train/tiny_run.h"

namespace lft::test {

/// Writes pairs.json in LLaMA-Factory's form: each row's answer over another one. Returns its path.
inline std::string write_pairs(const TinyRun& run) {
  nlohmann::json rows = nlohmann::json::parse(slurp(run.dir().file("rows.json")));
  const char* const others[] = {"a tree", "red, or rather not", "x"};
  size_t next = 0;
  for (nlohmann::json& row : rows) {
    nlohmann::json answer = row["conversations"][1];
    row["conversations"].erase(1);
    row["chosen"] = answer;
    answer["value"] = others[next++ % 3];
    row["rejected"] = answer;
  }
  return run.dir().write("pairs.json", rows.dump());
}

}  // namespace lft::test
