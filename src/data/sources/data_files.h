// The data files that a path in a recipe names.
#pragma once
#include <string>
#include <vector>

namespace lft::data {

struct DataFile {
  std::string path;
  std::string shown = {};  // its name in messages; empty: its path
};

/// The file itself, or the tar and Parquet files of a folder in the order of their names, or the
/// shards of a folder that Hugging Face's save_to_disk wrote; empty for a folder without such
/// files, as for one that `lft prepare` wrote. Parquet and Arrow files are unpacked
/// (src/data/sources/unpack.h). kInput for a folder of several splits.
std::vector<DataFile> data_files(const std::string& path);

}  // namespace lft::data
