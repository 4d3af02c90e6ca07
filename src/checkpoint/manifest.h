// MANIFEST, which makes a directory a checkpoint: names, sizes and hashes of its files, then the
// hash of MANIFEST itself. For this folder.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "src/io/json.h"

namespace lft::checkpoint {

inline constexpr char kManifest[] = "MANIFEST";
inline constexpr char kTrainables[] = "trainables.safetensors",
                      kOptimizer[] = "optimizer.safetensors", kState[] = "state.json",
                      kRecipe[] = "recipe.yaml";
inline constexpr int64_t kManifestVersion = 1;

struct ManifestFile {
  std::string name;
  uint64_t bytes = 0;
  std::string sha256;
  bool operator==(const ManifestFile&) const = default;
};

struct Manifest {
  int64_t version = kManifestVersion;
  std::string lft = {};  // that wrote it
  std::string run_id = {};
  int64_t step = 0;
  io::Json identity = io::Json::object(), environment = io::Json::object();
  std::vector<ManifestFile> files =
      {};  // the four, in the order above; the recipe's hash is its file's
};

/// The whole file: JSON, then the line "sha256 <hex of everything before this line>". `lft` and
/// `version` are those of this build.
std::string manifest_text(const Manifest& manifest);

/// kCheckpoint when MANIFEST is missing, damaged or not one of ours. Of a newer version nothing but
/// `version` and `lft` is read.
Manifest read_manifest(const std::string& step_path);

/// Reads the manifest and every file that it names. kCheckpoint: one of them is damaged or missing,
/// a newer lft wrote it, or it holds another step than its directory is named for.
Manifest verify_step(const std::string& step_path);

/// JSON text that reads back to the same value; kInternal naming `what` where it would not (NaN,
/// invalid UTF-8, nested too deeply).
std::string exact_json_text(const io::Json& json, const std::string& what);

}  // namespace lft::checkpoint
