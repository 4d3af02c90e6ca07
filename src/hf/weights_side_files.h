// The files of a model folder besides its weights.
#pragma once
#include <string>

namespace lft::hf {

/// Copies from one folder to another every file that a tokenizer, a processor, a template or a
/// generation may read, and licences; no weights and no config.json.
void copy_side_files(const std::string& from, const std::string& to);

}  // namespace lft::hf
