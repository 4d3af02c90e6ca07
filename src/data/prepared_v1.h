// Prepared data as lft wrote it until version 2: rows.jsonl, which is parsed and held, and shards
// of int64 ids and plain pixels. Read, and never written.
#pragma once
#include <memory>
#include <string>

#include "src/data/dataset.h"

namespace lft::data {

/// As open_prepared().
std::unique_ptr<Dataset> open_prepared_v1(const std::string& path, const EncodeOptions& options);

}  // namespace lft::data
