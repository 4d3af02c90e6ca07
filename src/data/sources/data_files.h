// Which files of rows a path of a recipe stands for.
#pragma once
#include <string>
#include <vector>

namespace lft::data {

struct DataFile {
  std::string path;
  std::string shown = {};  // what messages call it; empty: its path
};

/// The file itself, or the tar and Parquet files of a folder in the order of their names, or the
/// shards of a folder that Hugging Face's save_to_disk wrote; none of a folder without such, as
/// those that `lft prepare` writes are. Parquet and Arrow files are unpacked
/// (src/data/sources/unpack.h). kInput for a folder of several splits.
std::vector<DataFile> data_files(const std::string& path);

}  // namespace lft::data
