// The directory that `lft prepare` writes and `train` reads through pread: index.json, rows.jsonl,
// shard-NNNNN.safetensors. No decoder is needed.
#pragma once
#include <memory>
#include <string>

#include "src/data/dataset.h"

namespace lft::data {

/// Throws kInput where the directory is not one that lft prepared, is damaged, or was made for
/// other options (each difference named).
std::unique_ptr<Dataset> open_prepared(const std::string& path, const EncodeOptions& options);

}  // namespace lft::data
