// LLaMA-Factory's dataset_info.json: data sets by name, with their files, columns and tags.
#pragma once
#include <optional>
#include <string>

#include "src/data/sources/data_files.h"

namespace lft::data {

/// A path "DIR/dataset_info.json" or "DIR/dataset_info.json#NAME".
struct InfoPath {
  std::string file, name;
};
/// Empty for any other path, and for the file of that name that Hugging Face's datasets writes.
std::optional<InfoPath> info_path(const std::string& path);

/// The file or folder of the set, next to dataset_info.json, with its columns. kInput for an
/// unknown name, for several sets without a name, and for a set that lft does not read: of the hub,
/// with videos. With "ranking": true its rows are pairs, with a column kto_tag the rows have it.
DataFile info_set(const InfoPath& path);

/// The names of the sets in the dataset_info.json of a folder; empty if it has none.
std::vector<std::string> info_names(const std::string& folder);

}  // namespace lft::data
