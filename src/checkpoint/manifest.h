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
  std::string lft = {};  // the version that wrote it
  std::string run_id = {};
  int64_t step = 0;
  io::Json identity = io::Json::object(), environment = io::Json::object();
  std::vector<ManifestFile> files =
      {};  // the four, in the order above; the recipe's hash is its file's
};

/// The complete file: JSON, then the line "sha256 <hex of everything before this line>". `lft` and
/// `version` are those of this build.
std::string manifest_text(const Manifest& manifest);

/// kCheckpoint if MANIFEST is missing, damaged or not one of lft's. For a newer version only
/// `version` and `lft` are read.
Manifest read_manifest(const std::string& step_path);

/// Reads the manifest and every file in it. kCheckpoint: one of them is damaged or missing, a newer
/// lft wrote it, or its step differs from its directory's name.
Manifest verify_step(const std::string& step_path);

/// JSON text that reads back to the same value; kInternal with `what` if it would not (NaN, invalid
/// UTF-8, nested too deeply).
std::string exact_json_text(const io::Json& json, const std::string& what);

}  // namespace lft::checkpoint
