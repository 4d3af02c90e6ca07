#include "src/hf/shards.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/text.h"
#include "src/hf/weights.h"
#include "src/io/files.h"
#include "src/io/json.h"

namespace lft::hf {
namespace {

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

[[noreturn]] void no_weights(const std::string& dir) {
  std::vector<std::string> pickles, others;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(dir, ignored)) {
    const std::string name = entry.path().filename().string(),
                      suffix = entry.path().extension().string();
    const bool pickle =
        suffix == ".bin" || suffix == ".pt" || suffix == ".pth" || suffix == ".ckpt";
    if (pickle) pickles.push_back(name);
    if (suffix == ".safetensors") others.push_back(name);
  }
  std::sort(pickles.begin(), pickles.end());
  std::sort(others.begin(), others.end());
  const std::string expected = std::string(kSingle) + " or " + kIndexFile;
  if (pickles.empty()) {
    refuse(ErrorKind::kInput, "no weights in the model directory", dir,
           others.empty() ? "no *.safetensors file" : "only " + join(others, ", ", 5), expected);
  }
  refuse(ErrorKind::kInput, "pickled weights are not opened", dir, join(pickles, ", ", 5), expected,
         "convert to safetensors: from_pretrained(DIR), then save_pretrained(NEW_DIR) in "
         "transformers");
}

/// A shard's name comes from a file: it must not lead out of the folder. Symlinks are followed (the
/// HF cache is made of them).
void check_shard_name(const std::string& name, const std::string& index) {
  const bool plain = !name.empty() && name.find('/') == std::string::npos &&
                     name.find('\\') == std::string::npos && name.find('\0') == std::string::npos &&
                     name.front() != '.' && name.ends_with(".safetensors");
  if (!plain)
    refuse(ErrorKind::kInput, "a shard has no valid name", index, quote_text(name),
           "one path component that ends in .safetensors");
}

using WeightMap = std::map<std::string, std::string>;  // tensor -> shard

WeightMap read_weight_map(const io::Json& json, const std::string& index) {
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object() ||
      json["weight_map"].empty()) {
    refuse(ErrorKind::kInput, "the index has no weight_map", index, "",
           "an object with weight_map: {tensor: shard}");
  }
  WeightMap map;
  for (const auto& [tensor, shard] : json["weight_map"].items()) {
    if (!shard.is_string())
      refuse(ErrorKind::kInput, "a shard has no valid name", index + ": " + quote_text(tensor),
             shard.dump().substr(0, 100), "a string");
    check_shard_name(shard.get<std::string>(), index);
    map[tensor] = shard.get<std::string>();
  }
  return map;
}

void check_index(const WeightMap& map, const std::vector<io::SafetensorsFile>& files,
                 const std::string& index) {
  Faults absent{"tensors absent from the shard that the index names", {}};
  Faults stray{"tensors in a shard that the index does not name for them", {}};
  std::set<std::pair<std::string, std::string>> stored;
  for (const io::SafetensorsFile& file : files) {
    const std::string shard = std::filesystem::path(file.path()).filename().string();
    for (const auto& [tensor, info] : file.tensors()) {
      stored.emplace(tensor, shard);
      const auto at = map.find(tensor);
      if (at == map.end())
        stray.items.push_back(tensor + " (in " + shard + ", listed nowhere)");
      else if (at->second != shard)
        stray.items.push_back(tensor + " (in " + shard + ", listed for " + at->second + ")");
    }
  }
  for (const auto& [tensor, shard] : map) {
    if (!stored.contains({tensor, shard})) absent.items.push_back(tensor + " (" + shard + ")");
  }
  const std::vector<Faults> faults = {absent, stray};
  if (any(faults))
    refuse(ErrorKind::kInput, "the index and its shards disagree", index, describe(faults),
           "every tensor in exactly the shard that the index names");
}

void check_total_size(const io::Json& json, const std::vector<io::SafetensorsFile>& files,
                      const std::string& index) {
  if (!json.contains("metadata") || !json["metadata"].is_object() ||
      !json["metadata"].contains("total_size"))
    return;
  const io::Json& stated = json["metadata"]["total_size"];
  uint64_t bytes = 0;
  for (const io::SafetensorsFile& file : files) {
    for (const auto& [tensor, info] : file.tensors()) bytes += info.bytes;
  }
  if (!stated.is_number() || stated.get<double>() != static_cast<double>(bytes)) {
    refuse(ErrorKind::kInput, "the index states another size than its shards have",
           index + ": metadata.total_size", stated.dump().substr(0, 100),
           std::to_string(bytes) + " bytes");
  }
}

std::vector<io::SafetensorsFile> open_shards(const std::string& dir) {
  const std::string index = dir + "/" + kIndexFile;
  refuse_lfs_pointer(index);
  const io::Json json = io::read_json_file(index);
  const WeightMap map = read_weight_map(json, index);
  std::set<std::string> names;
  for (const auto& [tensor, shard] : map) names.insert(shard);
  Faults missing{"shards missing", {}};
  for (const std::string& name : names) {
    if (!io::path_exists(dir + "/" + name)) missing.items.push_back(name);
  }
  if (!missing.items.empty())
    refuse(ErrorKind::kInput, "shards of the index are missing", index, describe({missing}),
           "every shard in the same folder");
  std::vector<io::SafetensorsFile> files;
  for (const std::string& name : names) {
    refuse_lfs_pointer(dir + "/" + name);
    files.emplace_back(dir + "/" + name);
  }
  check_index(map, files, index);
  check_total_size(json, files, index);
  return files;
}

}  // namespace

void refuse_lfs_pointer(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored) ||
      std::filesystem::file_size(path, ignored) > 1024)
    return;
  if (io::read_file(path, 1024).starts_with("version https://git-lfs.github.com/spec/")) {
    refuse(ErrorKind::kInput, "the file is a Git LFS pointer, not the file itself", path,
           "a text of a few lines with an oid", "",
           "fetch the content: git lfs pull in the checkpoint's repository");
  }
}

std::vector<io::SafetensorsFile> open_weight_files(const std::string& dir) {
  const std::string single = dir + "/" + kSingle;
  if (io::path_exists(single)) {
    refuse_lfs_pointer(single);
    std::vector<io::SafetensorsFile> files;
    files.emplace_back(single);
    return files;
  }
  if (!io::path_exists(dir + "/" + kIndexFile)) no_weights(dir);
  return open_shards(dir);
}

}  // namespace lft::hf
