#include "src/hf/model_folder.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "kernels/common/error.h"
#include "src/base/text.h"
#include "src/io/files.h"
#include "src/io/json.h"

namespace lft::hf {
namespace {

namespace fs = std::filesystem;

constexpr const char* kExpected = "a folder with config.json and *.safetensors";
constexpr const char* kCached = "models--";  // prefix of a model's name in the hub's cache

bool is_name(const std::string& part) {
  const auto fits = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_'; };
  return !part.empty() && std::isalnum(static_cast<unsigned char>(part.front())) &&
         std::ranges::all_of(part, [&](char c) { return c == '.' || fits(c); });
}

/// ORG/NAME in the hub's style; if a folder ORG exists, it is more likely a path.
bool is_hub_id(const std::string& path) {
  const size_t slash = path.find('/');
  return slash != std::string::npos && is_name(path.substr(0, slash)) &&
         is_name(path.substr(slash + 1)) && !io::path_exists(path.substr(0, slash));
}

std::string download(const std::string& id) {
  return "hf download " + shell_word(id) + " --local-dir " + shell_word(id);
}

/// "ORG/NAME" from a path through models--ORG--NAME; else empty.
std::string cached_id(const std::string& path) {
  for (const fs::path& part : fs::path(io::absolute_path(path))) {
    std::string name = part.string();
    if (!name.starts_with(kCached)) continue;
    name.erase(0, std::string(kCached).size());
    if (const size_t at = name.find("--"); at != std::string::npos) name.replace(at, 2, "/");
    return name;
  }
  return {};
}

/// The snapshot that refs/main names, else the only or the first one; empty if there is none.
std::string snapshot_of(const std::string& repository) {
  const std::string snapshots = repository + "/snapshots", main = repository + "/refs/main";
  if (io::is_directory(snapshots) && fs::is_regular_file(main)) {
    std::string hash = io::read_file(main, 1024);
    hash.erase(
        std::ranges::remove_if(hash, [](unsigned char c) { return std::isspace(c); }).begin(),
        hash.end());
    if (!hash.empty() && is_name(hash) && io::is_directory(snapshots + "/" + hash))
      return snapshots + "/" + hash;
  }
  if (!io::is_directory(snapshots)) return {};
  for (const std::string& name : io::list_dir(snapshots))
    if (io::is_directory(snapshots + "/" + name)) return snapshots + "/" + name;
  return {};
}

[[noreturn]] void refuse_absent(const std::string& path) {
  const std::string what = "the model directory does not exist";
  if (is_dangling(path))
    refuse(ErrorKind::kInput, what, path,
           "a link to " + fs::read_symlink(path).string() + ", which does not exist", kExpected,
           "check model.path or --model");
  if (is_hub_id(path)) {
    refuse(ErrorKind::kInput, what, path,
           "nothing: a name of the Hugging Face hub perhaps, from which lft downloads nothing",
           kExpected, download(path));
  }
  refuse(ErrorKind::kInput, what, path, io::path_exists(path) ? "a file" : "nothing", kExpected,
         "check model.path or --model");
}

/// The only subfolder that is a checkpoint; empty for none or several.
std::string only_model_below(const std::string& path) {
  std::vector<std::string> found;
  for (const std::string& name : io::list_dir(path))
    if (io::path_exists(path + "/" + name + "/config.json")) found.push_back(path + "/" + name);
  return found.size() == 1 ? found.front() : std::string();
}

[[noreturn]] void refuse_cache(const std::string& path, const std::string& repository) {
  const std::string snapshot = snapshot_of(repository);
  refuse(ErrorKind::kInput, "a folder of the Hugging Face cache, not a model's", path, {},
         "the folder of a snapshot in it, with config.json and *.safetensors",
         snapshot.empty() ? download_again(path) : "give " + snapshot);
}

}  // namespace

bool is_dangling(const std::string& path) {
  std::error_code none;
  return fs::is_symlink(path, none) && !fs::exists(path, none);
}

std::string download_again(const std::string& path) {
  const std::string id = cached_id(path);
  return id.empty() ? "download the model again: hf download fetches what is missing or incomplete"
                    : "hf download " + shell_word(id);
}

void require_model_folder(const std::string& path) {
  if (!io::is_directory(path)) refuse_absent(path);
  const std::string config = path + "/config.json";
  if (io::path_exists(config)) return;
  const std::string what = "no config.json in the model directory";
  if (is_dangling(config))
    refuse(ErrorKind::kInput, what, config,
           "a link to " + fs::read_symlink(config).string() + ", which does not exist", kExpected,
           download_again(path));
  const std::string named = fs::path(io::absolute_path(path)).filename().string();
  if (io::is_directory(path + "/snapshots")) refuse_cache(path, path);
  if (named == "snapshots") refuse_cache(path, io::absolute_path(path + "/.."));
  if (io::path_exists(path + "/adapter/adapter_config.json")) {
    refuse(ErrorKind::kInput, "a run's folder with an adapter and no model", path, {}, kExpected,
           "give the run's base as the model, and " + path + " as the adapter");
  }
  if (io::path_exists(path + "/adapter_config.json")) {
    refuse(ErrorKind::kInput, "an adapter's folder, without a model", path, {}, kExpected,
           "give the adapter's base as the model, and " + path + " as the adapter");
  }
  const std::string below = only_model_below(path);
  refuse(ErrorKind::kInput, what, path, join(io::list_dir(path), ", ", 5), kExpected,
         below.empty() ? "check model.path or --model" : "give " + below);
}

void refuse_quantised(const nlohmann::json& config, const std::string& file) {
  const char* key = "quantization_config";
  const nlohmann::json* found = nullptr;
  std::string where = file + ": ";
  for (const char* part : {"", "text_config"}) {
    const nlohmann::json* object = &config;
    if (*part != 0 && config.is_object() && config.contains(part)) object = &config[part];
    if (!object->is_object() || !object->contains(key)) continue;
    const nlohmann::json& value = (*object)[key];
    if (value.is_null() || (value.is_object() && value.empty())) continue;
    found = &value;
    where += (*part != 0 ? std::string(part) + "." : "") + key;
    break;
  }
  if (found == nullptr) return;
  const auto method = found->is_object() ? found->find("quant_method") : found->end();
  refuse(ErrorKind::kInput, "the checkpoint is quantised", where,
         method != found->end() && method->is_string() ? io::describe_json(*method)
                                                       : "no quant_method",
         "weights in F32, F16 or BF16",
         "use the checkpoint that it was quantised from; with model.base_dtype: nf4 or fp8 lft "
         "quantises it as it is read, in as little memory");
}

}  // namespace lft::hf
