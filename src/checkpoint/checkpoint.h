// A saved step of a run as plain data: written so that a crash never loses an earlier one, read
// only if every byte verifies. Independent of the trainer.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/io/json.h"
#include "src/recipe/recipe.h"

namespace lft::checkpoint {

/// On disk: <dir>/step-<n>/ with the four files below and MANIFEST, which lists each with its size
/// and sha256 and ends with its own.
struct Checkpoint {
  int64_t step = 0;
  std::string run_id;
  std::map<std::string, at::Tensor>
      trainables;  // masters by canonical name (F32, BF16 or F16): trainables.safetensors
  std::map<std::string, at::Tensor> moments;  // "exp_avg.<name>", ...: optimizer.safetensors
  io::Json state;                             // all other changing state: state.json
  io::Json identity = io::Json::object();     // flat: must be equal on resume (base, data,
                                              // tokenizer, world_size, ...)
  io::Json environment = io::Json::object();  // flat: versions, device, processor, threads; a
                                              // difference is one warning
  std::string recipe;                         // resolved recipe text: recipe.yaml
};

struct CheckpointStatus {
  int64_t step = 0;
  std::string path;
  std::string fault;  // one line; empty: it verifies
  std::string run_id;
  uint64_t bytes = 0;
  int64_t saved_at = 0;                    // seconds since 1970, when MANIFEST was written
  io::Json identity = io::Json::object();  // as in Checkpoint
};

/// Saves to `dir` (<output_dir>/checkpoints, created if missing) and then deletes old steps, so
/// that the newest `keep` >= 1 that verify remain, and step 0. The caller has the run's lock.
/// Temporary and retired folders of killed runs are deleted first. An existing step remains until
/// its successor is committed, or permanently if it has the same bytes. Steps of a newer lft are
/// not touched, except the step being saved. kNumeric, with nothing written: a tensor is not
/// finite. kUsage: `dir` has steps of another run. kResource: the disk; no temporary folder
/// remains, and steps that verified still do. kInternal: state, identity or environment would not
/// read back unchanged.
void save_checkpoint(const std::string& dir, const Checkpoint& checkpoint, int64_t keep);

/// Deletes every step of `dir` except these, as
/// saving does. The caller has the run's lock.
void retire_steps(const std::string& dir, const std::set<int64_t>& kept);

/// All steps of `dir`, newest first; a missing `dir` has none. With `verify` every file is read
/// completely, else only MANIFEST. Steps that a running job removes meanwhile are left out. Files
/// that are not in MANIFEST (network file systems create such) are ignored.
std::vector<CheckpointStatus> list_checkpoints(const std::string& dir, bool verify);
/// One step directory with any name; every file is read.
CheckpointStatus inspect_checkpoint(const std::string& path);

/// One step directory, tensors on the CPU. kCheckpoint with the file, and expected and actual size
/// and hash.
Checkpoint load_checkpoint(const std::string& path);

/// The newest step that verifies, with one warning for each newer one that does not. Nothing if
/// there is no step; kCheckpoint with all reasons if there are steps and none verifies, or if `dir`
/// cannot be read.
std::optional<Checkpoint> load_newest(const std::string& dir, std::vector<std::string>* warnings);

/// Every difference between two identities, one line each: "data: stored ..., now ...".
std::vector<std::string> identity_changes(const io::Json& stored, const io::Json& now);
/// kCheckpoint with every difference (key, stored, now) in `identity` and in recipe fields that
/// must not change on resume.
void check_identity(const Checkpoint& checkpoint, const io::Json& identity,
                    const recipe::Recipe& recipe);

/// One line with the differences and a note that bit identity is not guaranteed; empty if there are
/// none.
std::string environment_warning(const Checkpoint& checkpoint, const io::Json& environment);

/// Time and random digits, as 20250131-235959-1a2b3c4d.
std::string new_run_id();

}  // namespace lft::checkpoint
