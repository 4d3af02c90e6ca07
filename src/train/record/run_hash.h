// The rolling hash of a run: over its steps, the ids of the samples and the bits of the loss. Two
// runs with the same hash at a step have seen the same samples and computed the same losses up to
// it. Used to check a metrics.jsonl.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace lft::train {

/// 16 hexadecimal digits each, the first ones of a sha256.
struct StepHashes {
  std::string ids;  // of the step's sample ids in micro-batch order, as a JSON array
                    // of texts
  std::string run;  // over the run's hash before the step, `ids`, and the 16 digits of the loss's
                    // bits, as one text
};

/// The run's hash before step 1.
std::string first_run_hash();
/// `ids`: of all samples of the step, in order. `loss`: as computed, also for a skipped or failed
/// step; 0 if none was computed. All NaN are equal.
StepHashes fold_step(const std::string& run_hash, const std::vector<std::string>& ids, double loss);

/// The `run` of fold_step(), from a step's values in metrics.jsonl.
std::string fold_hashes(const std::string& run_hash, const std::string& ids_hash, double loss);

/// The bits of a double as 16 hexadecimal digits, equal for every NaN. JSON has no NaN.
std::string bits_text(double value);
double bits_value(const std::string& text);

/// One text per fault in the first `bytes` of the file: an
/// unreadable line, a missing step, a step whose loss or
/// samples do not match its run hash. Empty for a missing file.
std::vector<std::string> metrics_faults(const std::string& path, uint64_t bytes);

}  // namespace lft::train
