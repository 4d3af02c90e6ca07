// Values of a row's JSON, and how messages name them.
#pragma once
#include <string>

#include "src/data/rows/row_keys.h"
#include "src/io/json.h"

namespace lft::data {

/// A value of a Parquet or Arrow file that JSON has no form for.
bool is_unnamed(const io::Json& json);
std::string describe(const io::Json& json);
/// 'keys "a", "b"'
std::string key_names(const io::Json& object);
/// kInput where `object` is no object or lacks the key.
const io::Json& member(const io::Json& object, const std::string& key, const std::string& where);
/// The name in {"path": ...} or {"url": ...}, or a name itself. Pixels within the row ("bytes") are
/// not read.
const io::Json& image_name(const io::Json& image, RowKeyCheck& check, const std::string& where);

}  // namespace lft::data
