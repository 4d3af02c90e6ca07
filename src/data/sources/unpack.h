// Unpacks Parquet and Arrow files once into tar files of samples in the user's cache, where each
// row can be read by its offset.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "src/data/arrow_module/module.h"

namespace lft::data {

/// Whether the first bytes are those of Parquet, or of Arrow's IPC file or stream format.
bool is_arrow_file(const std::string& path);

/// Visits the rows in order. Throws the errors of unpacked() and of `visit`. kInput without a row.
void read_arrow_rows(const std::string& path,
                     const std::function<void(int64_t row, ArrowRow&& values)>& visit);

/// The tar file for such a file in $XDG_CACHE_HOME/lft/unpacked (by default ~/.cache). It is
/// created by one process at a time if it is missing or does not match the present file; free space
/// is checked first. Empty if the file has no rows. kInput with file and row for data that cannot
/// be read; kResource if it cannot be written; kUsage if this build has no Arrow.
std::optional<std::string> unpacked(const std::string& path);
[[noreturn]] void refuse_empty(const std::string& path);

}  // namespace lft::data
