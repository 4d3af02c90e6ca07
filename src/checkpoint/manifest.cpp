#include "src/checkpoint/manifest.h"

#include <iterator>
#include <optional>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/hash.h"
#include "src/checkpoint/steps.h"
#include "src/io/file_handle.h"
#include "src/io/files.h"

namespace lft::checkpoint {
namespace {

constexpr char kFormat[] = "lft checkpoint", kMark[] = "sha256 ";
constexpr const char* kFiles[] = {kTrainables, kOptimizer, kState, kRecipe};
constexpr io::JsonLimits kLimits{.max_bytes = 4u << 20, .max_depth = 8};
constexpr size_t kHashLength = 64, kTail = sizeof kMark - 1 + kHashLength + 1;

[[noreturn]] void bad_manifest(const std::string& what, const std::string& where,
                               const std::string& found = "", const std::string& expected = "") {
  refuse(ErrorKind::kCheckpoint, what, where, found, expected,
         "resume from another step, or restore this one");
}

/// Any read failure means that the checkpoint cannot be used.
template <class Body>
auto as_checkpoint(Body body) {
  try {
    return body();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput) throw;
    const ErrorInfo& info = error.info();
    bad_manifest(info.what, info.where, info.found, info.expected);
  }
}

/// The JSON part, after its hash was compared with the last line.
std::string checked_json(const std::string& path, const std::string& text) {
  if (text.size() < kTail || text.back() != '\n' ||
      text.compare(text.size() - kTail, sizeof kMark - 1, kMark) != 0) {
    bad_manifest("the checkpoint is damaged", path,
                 std::to_string(text.size()) + " bytes without a hash at the end",
                 "\"sha256 <hash>\" as the last line");
  }
  const std::string json = text.substr(0, text.size() - kTail);
  const std::string wanted = text.substr(text.size() - kHashLength - 1, kHashLength),
                    got = sha256(json);
  if (got != wanted)
    bad_manifest("the checkpoint is damaged", path, "sha256 " + got,
                 "sha256 " + escape_text(wanted));
  return json;
}

std::vector<ManifestFile> parse_files(const io::Json& json, const std::string& path) {
  const auto list = json.find("files");
  if (list == json.end() || !list->is_array() || list->size() != std::size(kFiles))
    bad_manifest("the checkpoint does not list its files", path);
  std::vector<ManifestFile> files;
  for (const io::Json& entry : *list) {
    ManifestFile file;
    file.name = io::json_string(entry, "name", path);
    file.bytes = static_cast<uint64_t>(io::json_int(entry, "bytes", 0, INT64_MAX, path));
    file.sha256 = io::json_string(entry, "sha256", path);
    if (file.name != kFiles[files.size()])
      bad_manifest("the checkpoint lists an unknown file", path, quote_text(file.name),
                   kFiles[files.size()]);
    files.push_back(std::move(file));
  }
  return files;
}

io::Json parse_object(const io::Json& json, const std::string& key, const std::string& path) {
  const auto value = json.find(key);
  if (value == json.end() || !value->is_object())
    bad_manifest("the checkpoint has no " + key, path);
  return *value;
}

std::string size_and_hash(uint64_t bytes, const std::string& hash) {
  return std::to_string(bytes) + " bytes, sha256 " + hash;
}

void verify_file(const std::string& path, const ManifestFile& file) {
  std::string found;
  try {
    const uint64_t bytes = io::FileHandle::open_to_read(path).size();
    found = size_and_hash(bytes, sha256_file(path));
  } catch (const Error& error) {
    found = error.info().found;
  }
  const std::string wanted = size_and_hash(file.bytes, file.sha256);
  if (found != wanted) bad_manifest("the checkpoint is damaged", path, found, wanted);
}

}  // namespace

std::string exact_json_text(const io::Json& json, const std::string& what) {
  std::string reason = "NaN or an infinity";
  try {
    std::string text = json.dump(2) + "\n";
    if (io::parse_json(text, what) == json) return text;
  } catch (const Error& error) {
    reason = error.what();
  } catch (const io::Json::exception& error) {
    reason = error.what();
  }
  throw Error(ErrorKind::kInternal,
              "a checkpoint's " + what + " would not read back as it is: " + reason);
}

std::string manifest_text(const Manifest& manifest) {
  io::Json files = io::Json::array();
  for (const ManifestFile& file : manifest.files)
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"sha256", file.sha256}});
  const io::Json json = {{"format", kFormat},
                         {"version", kManifestVersion},
                         {"lft", LFT_VERSION},
                         {"run_id", manifest.run_id},
                         {"step", manifest.step},
                         {"identity", manifest.identity},
                         {"environment", manifest.environment},
                         {"files", files}};
  const std::string text = exact_json_text(json, kManifest);
  return text + kMark + sha256(text) + "\n";
}

Manifest read_manifest(const std::string& step_path) {
  const std::string path = step_path + "/" + kManifest;
  return as_checkpoint([&] {
    const io::Json json =
        io::parse_json(checked_json(path, io::read_file(path, kLimits.max_bytes)), path, kLimits);
    if (io::json_string(json, "format", path) != kFormat)
      bad_manifest("this is no checkpoint of lft", path);
    Manifest manifest;
    manifest.version = io::json_int(json, "version", 1, INT64_MAX, path);
    manifest.lft = io::json_string(json, "lft", path);
    if (manifest.version > kManifestVersion) return manifest;
    manifest.run_id = io::json_string(json, "run_id", path);
    manifest.step = io::json_int(json, "step", 0, INT64_MAX, path);
    manifest.identity = parse_object(json, "identity", path);
    if (manifest.identity.contains("world_size"))
      io::json_int(manifest.identity, "world_size", 1, 1 << 20, path + ": identity");
    manifest.environment = parse_object(json, "environment", path);
    manifest.files = parse_files(json, path);
    return manifest;
  });
}

Manifest verify_step(const std::string& step_path) {
  const Manifest manifest = read_manifest(step_path);
  const std::string path = step_path + "/" + kManifest;
  if (manifest.version > kManifestVersion) {
    refuse(ErrorKind::kCheckpoint, "the checkpoint was written by a newer lft", path,
           "format " + std::to_string(manifest.version) + ", lft " + manifest.lft,
           "format " + std::to_string(kManifestVersion) + " or older (this is lft " + LFT_VERSION +
               ")",
           "resume with that version of lft");
  }
  const std::optional<int64_t> named = step_of(step_path.substr(step_path.rfind('/') + 1));
  if (named && *named != manifest.step) {
    bad_manifest("the directory is named for another step", path,
                 "step " + std::to_string(manifest.step), "step " + std::to_string(*named));
  }
  for (const ManifestFile& file : manifest.files) verify_file(step_path + "/" + file.name, file);
  return manifest;
}

}  // namespace lft::checkpoint
