// What a path is that should be a checkpoint's folder: every other thing that people give instead
// is named, with the way from there.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lft::hf {

/// kInput unless `path` is a folder with a config.json. Knows names of the Hugging Face hub,
/// folders of its cache, links whose file is gone, adapters, runs, and folders above a checkpoint.
void require_model_folder(const std::string& path);
/// `path` is a link, and what it leads to is not there.
bool is_dangling(const std::string& path);
/// How a download is made whole: the command for a folder of the hub's cache, which says whose it
/// is; else in words.
std::string download_again(const std::string& path);
/// kInput for a config.json, of `file`, whose weights are quantised.
void refuse_quantised(const nlohmann::json& config, const std::string& file);

}  // namespace lft::hf
