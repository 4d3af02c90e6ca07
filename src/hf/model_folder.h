// Checks that a path is a checkpoint folder; other kinds of paths are recognised, and the error
// explains how to fix them.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lft::hf {

/// Throws kInput unless `path` is a folder with a config.json. Recognises names of the Hugging Face
/// hub, folders of its cache, broken links, adapters, runs, and parents of a checkpoint.
void require_model_folder(const std::string& path);
/// Whether `path` is a broken symlink.
bool is_dangling(const std::string& path);
/// How to complete a download: the command, for a folder of the hub's cache; else a sentence.
std::string download_again(const std::string& path);
/// Throws kInput for a config.json, of `file`, with quantized weights.
void refuse_quantised(const nlohmann::json& config, const std::string& file);

}  // namespace lft::hf
