#include "src/data/sources/data_files.h"

#include <algorithm>
#include <optional>
#include <set>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/text.h"
#include "src/data/rows/table_scanner.h"
#include "src/data/rows/tar.h"
#include "src/data/sources/dataset_info.h"
#include "src/data/sources/unpack.h"
#include "src/io/files.h"
#include "src/io/json.h"

namespace lft::data {
namespace {

/// Whether a name has one of the endings, ignoring case.
bool has_ending(const std::string& name, std::initializer_list<const char*> endings) {
  const std::string lower = lower_ascii(name);
  return std::ranges::any_of(endings, [&](const char* each) { return lower.ends_with(each); });
}

/// A tar file without members: its first block is empty.
bool is_empty_tar(const std::string& path) {
  if (!has_ending(path, {".tar"})) return false;
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

/// "train" for "train-00000-of-00003.parquet", "train.json", "train_01.csv" and "train1.tar"; empty
/// for a name without a split. A numbered shard has any split, other names have one of these words.
std::string split_of(const std::string& name) {
  const size_t of = name.rfind("-of-");
  const size_t number = of == std::string::npos || of == 0 ? of : name.rfind('-', of - 1);
  if (number != std::string::npos) return name.substr(0, number);
  const std::string word = lower_ascii(name.substr(0, name.find_first_of("._- 0123456789")));
  for (const char* split : {"train", "training", "test", "testing", "val", "valid", "validation",
                            "eval", "evaluation", "dev"})
    if (word == split) return word;
  return "";
}

/// Otherwise test data could be trained on without notice.
void refuse_splits(const std::string& folder, const std::vector<std::string>& names) {
  std::set<std::string> splits;
  for (const std::string& name : names)
    if (const std::string split = split_of(name); !split.empty()) splits.insert(split);
  if (splits.size() < 2) return;
  refuse(ErrorKind::kInput, "a folder with several splits of a data set", folder,
         join({splits.begin(), splits.end()}), "one of them",
         "name the files of one split, as a list of sources in data.train where they are several");
}

bool is_json_name(const std::string& name) {
  return has_ending(name, {".json", ".jsonl", ".ndjson"});
}

/// Files about a data set, not of its rows.
bool is_description(const std::string& name) {
  return name == "dataset_info.json" || name == "dataset_infos.json" || name == "state.json";
}

/// The JSON files, or the tables, of a folder that has no tar or Parquet file.
std::vector<std::string> text_files(const std::string& folder,
                                    const std::vector<std::string>& all) {
  std::vector<std::string> json, tables;
  for (const std::string& name : all) {
    if (name.starts_with('.') || is_description(name)) continue;
    if (is_json_name(name)) json.push_back(name);
    if (table_form(name)) tables.push_back(name);
  }
  if (!json.empty() && !tables.empty())
    refuse(ErrorKind::kInput, "a folder with several kinds of data files", folder,
           json[0] + ", " + tables[0], "files of one kind", "name the file");
  std::vector<std::string>& names = json.empty() ? tables : json;
  if (const std::vector<std::string> sets = info_names(folder); !sets.empty() && names.size() > 1)
    refuse(ErrorKind::kInput, "a folder of LLaMA-Factory's data sets", folder, join_names(sets, 8),
           "one of them", "name it: " + folder + "/dataset_info.json#" + sets[0]);
  return names;
}

constexpr const char* kMetadata[] = {"metadata.jsonl", "metadata.csv", "metadata.parquet"};

std::string metadata_in(const std::string& folder) {
  for (const char* name : kMetadata)
    if (io::path_exists(folder + "/" + name)) return folder + "/" + name;
  return "";
}

/// Hugging Face's imagefolder: the images next to a file of metadata, which names them in
/// "file_name", or several of a row in "file_names".
std::optional<DataFile> image_folder(const std::string& folder) {
  if (const std::string metadata = metadata_in(folder); !metadata.empty()) {
    std::optional<DataFile> file = data_file(metadata);
    if (!file) refuse_empty(metadata);
    file->image_root = folder;
    file->columns.names = {{"image", "file_name"}, {"images", "file_names"}};
    return file;
  }
  std::vector<std::string> splits;
  for (const std::string& name : io::list_dir(folder))
    if (io::is_directory(folder + "/" + name) && !metadata_in(folder + "/" + name).empty())
      splits.push_back(name);
  if (splits.empty()) return std::nullopt;
  refuse(ErrorKind::kInput, "a folder of image folders", folder, join_names(splits, 8),
         "one of them", "name " + folder + "/" + splits[0]);
}

std::vector<std::string> file_names(const std::string& folder) {
  if (io::path_exists(folder + "/state.json")) return saved_shards(folder);
  const std::vector<std::string> all = io::list_dir(folder);
  std::vector<std::string> names;
  for (const std::string& name : all)
    if (!name.starts_with('.') && has_ending(name, {".tar", ".parquet"}))  // '.': of macOS
      names.push_back(name);
  if (names.empty()) names = text_files(folder, all);
  refuse_splits(folder, names);
  return names;
}

/// A path that does not exist, and looks like the name of a data set on the hub.
void refuse_hub_name(const std::string& path) {
  const size_t slash = path.find('/');
  const auto is_word = [](std::string_view text) {
    return !text.empty() && text.find_first_not_of(
                                "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRST"
                                "UVWXYZ0123456789-_.") == std::string_view::npos;
  };
  if (slash == std::string::npos || io::path_exists(path) || is_json_name(path) ||
      table_form(path) || has_ending(path, {".parquet", ".tar", ".arrow"}) ||
      !is_word(path.substr(0, slash)) || !is_word(path.substr(slash + 1)) || path[0] == '.' ||
      io::path_exists(path.substr(0, slash)))
    return;
  const std::string folder = "data/" + path.substr(slash + 1);
  refuse(ErrorKind::kInput, "the data file does not exist", path, {},
         "a data file, or a folder of data files",
         "if it is a data set of the hub: lft does not download; hf download " + path +
             " --repo-type dataset --local-dir " + folder + ", then name its files or folder");
}

std::vector<DataFile> files_of(const std::string& path) {
  if (!io::is_directory(path)) {
    refuse_hub_name(path);
    const std::optional<DataFile> file = data_file(path);
    if (!file) refuse_empty(path);
    return {*file};
  }
  if (io::path_exists(path + "/index.json")) return {};
  if (io::path_exists(path + "/dataset_dict.json")) {
    refuse(ErrorKind::kInput, "a saved data set of several splits", path, join(io::list_dir(path)),
           "the folder of one split", "name " + path + "/<split>");
  }
  if (const std::optional<DataFile> images = image_folder(path)) return {*images};
  const std::vector<std::string> names = file_names(path);
  std::vector<DataFile> files;
  for (const std::string& name : names) {
    const std::optional<DataFile> file = data_file(path + "/" + name);
    if (file) files.push_back(*file);
  }
  if (files.empty() && !names.empty()) refuse_empty(path);
  return files;
}

}  // namespace

std::vector<DataFile> data_files(const std::string& path) {
  const std::optional<InfoPath> info = info_path(path);
  if (!info) return files_of(path);
  const DataFile set = info_set(*info);
  std::vector<DataFile> files = files_of(set.path);
  for (DataFile& file : files) {
    file.image_root = set.image_root;
    file.columns.names.insert(set.columns.names.begin(), set.columns.names.end());
    file.columns.tags = set.columns.tags;
  }
  return files;
}

}  // namespace lft::data
