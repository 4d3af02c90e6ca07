// The comparison of an uninterrupted run with a resumed one.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "src/debug/repeat/verify_resume.h"

namespace lft::debug {

struct Compared {
  std::string what;  // step lines, trainables.safetensors, ..., adapter/adapter_model.safetensors,
                     // next sample ids
  std::string whole = {}, other = {};  // sha256 of each side
  std::string difference = {};         // the first difference as text; empty: none
};

/// Compares causes before consequences. `step` is the last step of both. kCheckpoint if one of
/// their checkpoints does not verify.
std::vector<Compared> compare_parts(const std::string& whole_dir, const std::string& other_dir,
                                    int64_t step, const PartEnd& whole, const PartEnd& other);

/// The step after which the run in `dir` was last resumed, or -1.
int64_t resumed_behind(const std::string& dir);

/// The run hash of its last step; empty before the first step.
std::string last_run_hash(const std::string& dir);

}  // namespace lft::debug
