// Reads values of Linux's files about the machine and the process.
#pragma once
#include <string>

namespace lft {

/// The value of the first "KEY=value", "Key:   value" or "key\t: value" line of a file, selected by
/// `key`, without quotes; "" if there is none.
std::string line_value(const std::string& path, const std::string& key);
/// The value of a "Key:  123 kB" line in bytes; 0 if there is none.
double line_bytes(const std::string& path, const std::string& key);

}  // namespace lft
