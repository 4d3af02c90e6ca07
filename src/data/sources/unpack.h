// Parquet and Arrow files, unpacked once into tar files of samples in the user's cache: there every
// row is found again in one read.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "src/data/arrow_module/module.h"

namespace lft::data {

/// By its first bytes: Parquet, or Arrow's IPC format as a file or a stream.
bool is_arrow_file(const std::string& path);

/// Its rows in their order. Throws as unpacked() does, and what `visit` throws. kInput without a
/// row.
void read_arrow_rows(const std::string& path,
                     const std::function<void(int64_t row, ArrowRow&& values)>& visit);

/// The tar file that stands for one of these, in $XDG_CACHE_HOME/lft/unpacked (by default
/// ~/.cache). Made where it is missing or is not what was made of this file as it is now, by one
/// process at a time; the space that it takes is asked for first. Nothing where the file has no
/// rows. kInput with file and row for what cannot be read; kResource where it cannot be written;
/// kUsage where this build has no Arrow.
std::optional<std::string> unpacked(const std::string& path);
[[noreturn]] void refuse_empty(const std::string& path);

}  // namespace lft::data
