// The data files that a path in a recipe names.
#pragma once
#include <string>
#include <vector>

#include "src/data/rows/column_rules.h"

namespace lft::data {

struct DataFile {
  std::string path;
  std::string shown = {};       // its name in messages; empty: its path
  std::string image_root = {};  // the folder of its images, unless the recipe names one
  ColumnRules columns = {};     // names of its columns, unless the recipe names them
};

/// The file itself, or the data files of a folder in the order of their names: its tar and Parquet
/// files, or else its JSON or its CSV files; the shards of a folder that Hugging Face's
/// save_to_disk wrote; the metadata of an imagefolder; or a set of LLaMA-Factory's
/// dataset_info.json (src/data/sources/dataset_info.h). Empty for a folder without such files, as
/// for one that `lft prepare` wrote. Parquet and Arrow files are unpacked
/// (src/data/sources/unpack.h). kInput for a folder of several splits or kinds of files.
std::vector<DataFile> data_files(const std::string& path);

}  // namespace lft::data
