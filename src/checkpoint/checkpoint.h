// A saved step of a run as plain data: written so that no crash loses an earlier one, read only
// where every byte verifies. Knows no trainer.
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

/// On disk: <dir>/step-<n>/ with the four files below and MANIFEST, which names each with its size
/// and sha256 and ends with its own.
struct Checkpoint {
  int64_t step = 0;
  std::string run_id;
  std::map<std::string, at::Tensor>
      trainables;  // masters by canonical name (F32, BF16 or F16): trainables.safetensors
  std::map<std::string, at::Tensor> moments;  // "exp_avg.<name>", ...: optimizer.safetensors
  io::Json state;                             // everything else that moves: state.json
  io::Json identity = io::Json::object();     // flat: what must be the same on resume (base, data,
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

/// Saves to `dir` (<output_dir>/checkpoints, made where missing) and then retires old steps, so
/// that the newest `keep` >= 1 that verify stay, and step 0. The caller has the run's lock.
/// Temporary and retired folders that killed runs left are deleted first. A step that is there
/// already stays until its successor is committed, and for good when it holds the same bytes. What
/// a newer lft wrote is left alone, but for the step that is saved. kNumeric, with nothing written:
/// a tensor is not finite. kUsage: `dir` holds steps of another run. kResource: the disk; no
/// temporary folder is left then, and what verified before still does. kInternal: state, identity
/// or environment would not read back as they are.
void save_checkpoint(const std::string& dir, const Checkpoint& checkpoint, int64_t keep);

/// Deletes every step of `dir` but these, as saving retires old ones. The caller has the run's
/// lock.
void retire_steps(const std::string& dir, const std::set<int64_t>& kept);

/// All steps of `dir`, newest first; a missing `dir` has none. With `verify` every file is read in
/// full, else only MANIFEST. Steps that a running job removes meanwhile are left out. Files that
/// MANIFEST does not name (a network file system makes such) change nothing.
std::vector<CheckpointStatus> list_checkpoints(const std::string& dir, bool verify);
/// One step directory, whatever its name, every file read.
CheckpointStatus inspect_checkpoint(const std::string& path);

/// One step directory, tensors on the CPU. kCheckpoint naming the file, the size and hash that
/// MANIFEST wants and those found.
Checkpoint load_checkpoint(const std::string& path);

/// The newest step that verifies, with one warning for each newer one that does not. Nothing where
/// no step is; kCheckpoint with all the reasons where there are steps and none verifies, or `dir`
/// cannot be read.
std::optional<Checkpoint> load_newest(const std::string& dir, std::vector<std::string>* warnings);

/// Every difference between two identities, one line each: "data: stored ..., now ...".
std::vector<std::string> identity_changes(const io::Json& stored, const io::Json& now);
/// kCheckpoint with every difference (key, stored, now) in `identity` and in recipe fields that may
/// not change on resume.
void check_identity(const Checkpoint& checkpoint, const io::Json& identity,
                    const recipe::Recipe& recipe);

/// One line that names what differs and that bit identity is not promised; empty where nothing
/// differs.
std::string environment_warning(const Checkpoint& checkpoint, const io::Json& environment);

/// Time and randomness, as 20250131-235959-1a2b3c4d.
std::string new_run_id();

}  // namespace lft::checkpoint
