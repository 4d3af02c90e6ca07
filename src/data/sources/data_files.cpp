#include "src/data/sources/data_files.h"

#include <algorithm>
#include <optional>
#include <set>

#include "kernels/common/error.h"
#include "src/base/text.h"
#include "src/data/rows/tar.h"
#include "src/data/sources/unpack.h"
#include "src/io/files.h"
#include "src/io/hub_name.h"
#include "src/io/json.h"

namespace lft::data {
namespace {

/// A tar file without members: its first block is empty.
bool is_empty_tar(const std::string& path) {
  if (!path.ends_with(".tar")) return false;
  const io::FileHandle file = io::FileHandle::open_to_read(path);
  std::string head(std::min<uint64_t>(file.size(), kTarBlock), '\0');
  file.read_at(0, head.data(), head.size());
  return head.size() == kTarBlock && head.find_first_not_of('\0') == std::string::npos;
}

/// Empty if the file has no rows.
std::optional<DataFile> data_file(const std::string& path) {
  if (is_empty_tar(path)) return std::nullopt;
  if (!is_arrow_file(path)) return DataFile{.path = path};
  const std::optional<std::string> tar = unpacked(path);
  return tar ? std::optional(DataFile{.path = *tar, .shown = path}) : std::nullopt;
}

/// The shards listed by a saved data set of Hugging Face, in its order.
std::vector<std::string> saved_shards(const std::string& folder) {
  const std::string where = folder + "/state.json";
  const io::Json state = io::parse_json(io::read_file(where), where);
  std::vector<std::string> names;
  for (const io::Json& file : state.value("_data_files", io::Json::array())) {
    const io::Json name = file.is_object() ? file.value("filename", io::Json()) : io::Json();
    if (!name.is_string() || name.get<std::string>().find('/') != std::string::npos)
      refuse(ErrorKind::kInput, "a saved data set names a file that is none", where, name.dump());
    names.push_back(name.get<std::string>());
  }
  if (names.empty()) refuse(ErrorKind::kInput, "a saved data set without data files", where);
  return names;
}

/// "train" for "train-00000-of-00003.parquet".
std::string split_of(const std::string& name) {
  const size_t of = name.rfind("-of-");
  const size_t number = of == std::string::npos || of == 0 ? of : name.rfind('-', of - 1);
  return number == std::string::npos ? "" : name.substr(0, number);
}

/// Otherwise test data could be trained on without notice.
void refuse_splits(const std::string& folder, const std::set<std::string>& splits) {
  if (splits.size() < 2) return;
  refuse(ErrorKind::kInput, "a folder with several splits of a data set", folder,
         join({splits.begin(), splits.end()}), "one of them",
         "name the files of one split, as a list of sources in data.train where they are several");
}

/// Whether a name ends like a file's: "rows.json".
bool has_suffix(const std::string& path) {
  const std::string end = path.substr(path.find_last_of("/.") + 1);
  return end.size() <= 8 && path.ends_with("." + end);
}

/// A data set of the hub is a folder on disk for lft.
void refuse_hub_name(const std::string& path) {
  if (io::path_exists(path) || !io::is_hub_name(path) || has_suffix(path)) return;
  refuse(ErrorKind::kInput, "there is no such file or folder of rows", path,
         "nothing: a data set of the Hugging Face hub perhaps, from which lft downloads nothing",
         "a file of rows, or a folder of tar or Parquet files",
         "hf download --repo-type dataset " + shell_word(path) + " --local-dir data/" +
             shell_word(path.substr(path.find('/') + 1)) +
             ", then name its Parquet files of one split");
}

}  // namespace

std::vector<DataFile> data_files(const std::string& path) {
  refuse_hub_name(path);
  if (!io::is_directory(path)) {
    const std::optional<DataFile> file = data_file(path);
    if (!file) refuse_empty(path);
    return {*file};
  }
  if (io::path_exists(path + "/index.json")) return {};
  if (io::path_exists(path + "/dataset_dict.json")) {
    refuse(ErrorKind::kInput, "a saved data set of several splits", path, join(io::list_dir(path)),
           "the folder of one split", "name " + path + "/<split>");
  }
  std::vector<std::string> names;
  std::set<std::string> splits;
  if (io::path_exists(path + "/state.json")) {
    names = saved_shards(path);
  } else {
    for (const std::string& name : io::list_dir(path)) {
      if (name.starts_with('.')) continue;  // macOS metadata files
      const bool parquet = name.ends_with(".parquet");
      if (parquet || name.ends_with(".tar")) names.push_back(name);
      if (parquet) splits.insert(split_of(name));
    }
  }
  refuse_splits(path, splits);
  std::vector<DataFile> files;
  for (const std::string& name : names) {
    const std::optional<DataFile> file = data_file(path + "/" + name);
    if (file) files.push_back(*file);
  }
  if (files.empty() && !names.empty()) refuse_empty(path);
  return files;
}

}  // namespace lft::data
