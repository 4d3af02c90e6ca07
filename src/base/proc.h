// Lines of the files in which Linux tells about machine and process. No other files are read by it.
#pragma once
#include <string>

namespace lft {

/// The value of the first "KEY=value", "Key:   value" or "key\t: value" line of a file, as far as
/// `key` says it, without quotes; "" where there is none.
std::string line_value(const std::string& path, const std::string& key);
/// Of a "Key:  123 kB" line, in bytes; 0 where there is none.
double line_bytes(const std::string& path, const std::string& key);

}  // namespace lft
