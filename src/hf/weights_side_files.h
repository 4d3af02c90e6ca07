// The files of a model folder other than its weights.
#pragma once
#include <string>

namespace lft::hf {

/// Copies all files of tokenizer, processor, chat template and generation and licences from one
/// folder to another; neither weights nor config.json.
void copy_side_files(const std::string& from, const std::string& to);

}  // namespace lft::hf
