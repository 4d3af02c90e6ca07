// Names of the Hugging Face hub, given where a file or folder is expected. lft downloads nothing.
#pragma once
#include <string>

namespace lft::io {

/// ORG/NAME in the hub's style. If a folder ORG exists, it is more likely a path.
bool is_hub_name(const std::string& path);
/// Letters, digits, '-', '_' and '.', of which the first is a letter or digit.
bool is_hub_word(const std::string& word);

}  // namespace lft::io
