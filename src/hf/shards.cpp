#include "src/hf/shards.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/text.h"
#include "src/hf/model_folder.h"
#include "src/hf/weights.h"
#include "src/io/files.h"
#include "src/io/json.h"

namespace lft::hf {
namespace {

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

[[noreturn]] void no_weights(const std::string& dir) {
  std::vector<std::string> pickles, others, dangling;
  for (const std::string& name : io::list_dir(dir)) {
    const std::string suffix = std::filesystem::path(name).extension().string();
    const bool pickle =
        suffix == ".bin" || suffix == ".pt" || suffix == ".pth" || suffix == ".ckpt";
    if (is_dangling(dir + "/" + name)) {
      dangling.push_back(name);
    } else if (pickle) {
      pickles.push_back(name);
    } else if (suffix == ".safetensors") {
      others.push_back(name);
    }
  }
  const std::string expected = std::string(kSingle) + " or " + kIndexFile;
  if (!dangling.empty()) {
    refuse(ErrorKind::kInput, "no weights in the model directory", dir,
           "links whose files are not there: " + join(dangling, ", ", 5), expected,
           download_again(dir));
  }
  if (pickles.empty()) {
    refuse(ErrorKind::kInput, "no weights in the model directory", dir,
           others.empty() ? "no *.safetensors file" : "only " + join(others, ", ", 5), expected,
           download_again(dir));
  }
  refuse(ErrorKind::kInput, "pickled weights are not opened", dir, join(pickles, ", ", 5), expected,
         "convert to safetensors: from_pretrained(DIR), then save_pretrained(NEW_DIR) in "
         "transformers");
}

/// A shard's name comes from a file, so it must not point outside the folder. Symlinks are followed
/// (the HF cache consists of them).
void check_shard_name(const std::string& name, const std::string& index) {
  bool plain = name.ends_with(".safetensors") && name.find('\\') == std::string::npos &&
               name.find('\0') == std::string::npos;
  for (const std::filesystem::path& part : std::filesystem::path(name))
    plain = plain && !part.has_root_directory() && !part.native().starts_with('.');
  if (!plain)
    refuse(ErrorKind::kInput, "a shard has no valid name", index, quote_text(name),
           "a path below the folder that ends in .safetensors", download_again(index));
}

/// The shards that the index names. As in transformers the rest of it is ignored: all tensors that
/// a shard contains belong to the checkpoint.
std::set<std::string> listed_shards(const std::string& index) {
  const io::Json json = io::read_json_file(index);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object() ||
      json["weight_map"].empty()) {
    refuse(ErrorKind::kInput, "the index has no weight_map", index, "",
           "an object with weight_map: {tensor: shard}", download_again(index));
  }
  std::set<std::string> names;
  for (const auto& [tensor, shard] : json["weight_map"].items()) {
    if (!shard.is_string())
      refuse(ErrorKind::kInput, "a shard has no valid name", index + ": " + quote_text(tensor),
             io::describe_json(shard), "a string", download_again(index));
    names.insert(shard.get<std::string>());
  }
  for (const std::string& name : names) check_shard_name(name, index);
  return names;
}

std::vector<WeightFile> open_shards(const std::string& dir) {
  const std::string index = dir + "/" + kIndexFile;
  refuse_lfs_pointer(index);
  const std::set<std::string> names = listed_shards(index);
  Faults missing{"shards missing", {}};
  for (const std::string& name : names) {
    if (!io::path_exists(dir + "/" + name)) missing.items.push_back(name);
  }
  if (!missing.items.empty())
    refuse(ErrorKind::kInput, "shards of the index are missing", index,
           describe({missing}) + "\n  of " + std::to_string(names.size()) + " in the index",
           "every shard in the same folder", download_again(index));
  std::vector<WeightFile> files;
  for (const std::string& name : names) {
    refuse_lfs_pointer(dir + "/" + name);
    files.push_back({name, io::SafetensorsFile(dir + "/" + name)});
  }
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

std::vector<WeightFile> open_weight_files(const std::string& dir) {
  const std::string single = dir + "/" + kSingle;
  if (!io::path_exists(single)) {
    if (!io::path_exists(dir + "/" + kIndexFile)) no_weights(dir);
    return open_shards(dir);
  }
  refuse_lfs_pointer(single);
  std::vector<WeightFile> files;
  files.push_back({kSingle, io::SafetensorsFile(single)});
  return files;
}

}  // namespace lft::hf
