// `lft debug diff`: where two runs diverge, from their output directories, and how their inputs
// differ.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace lft::debug {

struct FieldDifference {
  std::string key, a,
      b;  // values as in JSON or a recipe; "nothing" if one side lacks the field
};

enum class Parting {
  kNone,
  kOutcome,    // one run took the step, the other skipped it, recovered or stopped
  kSamples,    // other sample ids
  kContents,   // the same ids, other tokens
  kSchedule,   // another learning rate
  kPrecision,  // another dtype or loss scale
  kNumbers,    // another loss or gradient norm over the same samples
};

struct RunSide {
  std::string path, run_id;  // run_id of its newest checkpoint, empty without one
  int64_t last_step = 0;     // 0: no step at all
};

struct RunDiff {
  RunSide a, b;
  std::vector<FieldDifference> recipe;       // without output_dir
  std::vector<FieldDifference> inputs;       // base, data, tokenizer, from the checkpoints
  std::vector<FieldDifference> environment;  // versions, device, threads, determinism
  std::vector<std::string> notes;            // what could not be compared
  int64_t compared = 0;                      // steps of both
  Parting parting = Parting::kNone;
  int64_t step = 0;                     // the first step that differs; 0: none
  std::vector<FieldDifference> fields;  // of that step, causes before consequences
};

/// kInput: one of them is no output directory of a run, its metrics are damaged, or they have no
/// step in common.
RunDiff diff_runs(const std::string& a, const std::string& b);

}  // namespace lft::debug
