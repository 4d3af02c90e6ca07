// The rolling hash of a run: over its steps, the ids of the samples and the bits of the loss. Two
// runs with the same hash at a step have seen the same samples and computed the same losses up to
// it. A metrics.jsonl is checked against it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace lft::train {

/// 16 hexadecimal digits each, the first ones of a sha256.
struct StepHashes {
  std::string ids;  // over the step's sample ids, one micro-batch after the other, as a JSON array
                    // of texts
  std::string run;  // over the run's hash before the step, `ids`, and the 16 digits of the loss's
                    // bits, as one text
};

/// What a run's hash is before step 1.
std::string first_run_hash();
/// `ids`: of all samples of the step, in order. `loss`: a skipped or failed step's too, as it was
/// computed; 0 where none was. Every NaN is the same one.
StepHashes fold_step(const std::string& run_hash, const std::vector<std::string>& ids, double loss);

/// The `run` of fold_step(), of what metrics.jsonl has of a step.
std::string fold_hashes(const std::string& run_hash, const std::string& ids_hash, double loss);

/// The bits of a double as 16 hexadecimal digits; every NaN has the same. JSON has no NaN.
std::string bits_text(double value);
double bits_value(const std::string& text);

/// One text a fault among the first `bytes` of the file: a line that cannot be read, a step that is
/// missing, a step whose loss or samples are not those of its run hash. Empty for a file that is
/// not there.
std::vector<std::string> metrics_faults(const std::string& path, uint64_t bytes);

}  // namespace lft::train
