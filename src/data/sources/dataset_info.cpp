#include "src/data/sources/dataset_info.h"

#include <map>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/text.h"
#include "src/io/files.h"
#include "src/io/json.h"

namespace lft::data {
namespace {

constexpr char kInfoFile[] = "dataset_info.json";

std::string folder_of(const std::string& file) {
  const size_t slash = file.rfind('/');
  return slash == std::string::npos ? "." : file.substr(0, slash);
}

/// A set has its data in a file, a script or on a hub; datasets' file of this name has features.
bool is_info(const io::Json& json) {
  if (!json.is_object() || json.empty()) return false;
  for (const auto& [name, set] : json.items()) {
    if (!set.is_object()) return false;
    bool known = false;
    for (const char* key :
         {"file_name", "hf_hub_url", "ms_hub_url", "om_hub_url", "script_url", "cloud_file_name"})
      known = known || set.contains(key);
    if (!known) return false;
  }
  return true;
}

std::vector<std::string> names_of(const io::Json& json) {
  std::vector<std::string> names;
  for (const auto& [name, set] : json.items()) names.push_back(name);
  return names;
}

[[noreturn]] void refuse_set(const std::string& where, const std::string& what,
                             const std::string& found, const std::string& next) {
  refuse(ErrorKind::kInput, what, where, found, {}, next);
}

/// Keys of a set that would change its rows, and that lft does not support.
void check_set(const io::Json& set, const std::string& where) {
  for (const char* key :
       {"hf_hub_url", "ms_hub_url", "om_hub_url", "script_url", "cloud_file_name"}) {
    if (set.contains(key) && !set.contains("file_name"))
      refuse_set(where, "a data set that is not in a file",
                 key + (": " + io::describe_json(set[key])),
                 "lft does not download: fetch it with `hf download NAME --repo-type dataset "
                 "--local-dir DIR` and name its files");
  }
  if (set.contains("ranking") && !set["ranking"].is_boolean())
    refuse_set(where, "a \"ranking\" that is neither true nor false",
               io::describe_json(set["ranking"]), "write true for rows of pairs");
  for (const char* key : {"num_samples", "subset", "split", "folder"}) {
    if (!set.contains(key) || set[key].is_null() || set[key] == "train") continue;
    refuse_set(where, "a key with a meaning that lft does not support",
               quote_text(key) + ": " + io::describe_json(set[key]),
               "take it out; in data.train a \"weight\" below 1 takes a part of the rows");
  }
}

/// The columns of preferences: of the two answers of a pair, and of whether an answer is a good
/// one.
constexpr const char *kChosenTag = "chosen", *kRejectedTag = "rejected", *kKtoTag = "kto_tag";

/// Pairs need both answers, and only sets of pairs have them.
void check_preferences(const io::Json& set, const io::Json& columns, const std::string& where) {
  const auto named = [&](const char* column) {
    return columns.contains(column) && !columns[column].is_null();
  };
  const bool pairs = set.value("ranking", false);
  if (pairs && named(kKtoTag))
    refuse_set(where, "a data set of pairs and of single answers at once",
               "\"ranking\": true and \"kto_tag\"", "take one of the two out");
  for (const char* column : {kChosenTag, kRejectedTag}) {
    if (pairs == named(column) || columns.empty()) continue;
    refuse_set(where,
               pairs ? "a data set of pairs without a column of one of its answers"
                     : "a column of pairs in a data set of single answers",
               pairs ? "no " + quote_text(column) + " in \"columns\""
                     : quote_text(column) + ": " + io::describe_json(columns[column]),
               pairs ? "name the column of each answer, in \"chosen\" and \"rejected\""
                     : "write \"ranking\": true, or take it out of \"columns\"");
  }
}

/// LLaMA-Factory's name of a column, and lft's; "" where lft does not support it.
struct InfoColumn {
  const char *theirs, *ours;
};
constexpr InfoColumn kAlpaca[] = {{"prompt", "question"},
                                  {"query", "input"},
                                  {"response", "answer"},
                                  {"history", "history"},
                                  {"system", "system"},
                                  {"images", "images"},
                                  {"tools", "tools"},
                                  {"videos", ""},
                                  {"audios", ""},
                                  {kChosenTag, kChosenTag},
                                  {kRejectedTag, kRejectedTag},
                                  {kKtoTag, kKtoTag}};
constexpr InfoColumn kShareGpt[] = {{"messages", "messages"}, {"system", "system"},
                                    {"images", "images"},     {"tools", "tools"},
                                    {"videos", ""},           {"audios", ""},
                                    {kChosenTag, kChosenTag}, {kRejectedTag, kRejectedTag},
                                    {kKtoTag, kKtoTag}};

/// As LLaMA-Factory, a column that "columns" leaves out is not used.
template <size_t N>
void read_columns_of(const io::Json& columns, const InfoColumn (&known)[N],
                     const std::string& where, ColumnRules& rules) {
  for (const auto& [name, column] : columns.items()) {
    const InfoColumn* found = nullptr;
    for (const InfoColumn& each : known) found = name == each.theirs ? &each : found;
    if (column.is_null()) continue;
    const bool known_column = found != nullptr && found->ours[0] != '\0';
    if (!known_column || !column.is_string()) {
      std::vector<std::string> all;
      for (const InfoColumn& each : known)
        if (each.ours[0] != '\0') all.emplace_back(each.theirs);
      refuse(ErrorKind::kInput, "a column that lft does not support", where,
             quote_text(name, 60) + ": " + io::describe_json(column), join(all),
             "take it out of \"columns\"");
    }
    rules.names[found->ours] = io::json_string(columns, name, where);
  }
  for (const InfoColumn& each : known)
    if (each.ours[0] != '\0') rules.names.try_emplace(each.ours, "");
}

/// The tags, each with LLaMA-Factory's default.
void read_tags(const io::Json& tags, const std::string& where, ColumnRules& rules) {
  rules.tags = {{"role_tag", "from"},
                {"content_tag", "value"},
                {"user_tag", "human"},
                {"assistant_tag", "gpt"},
                {"system_tag", "system"}};
  for (const auto& [tag, word] : tags.items()) {
    if (!word.is_string())
      refuse_set(where, "a tag that is no text", tag + ": " + io::describe_json(word),
                 "write a text");
    if (rules.tags.contains(tag)) rules.tags[tag] = word.get<std::string>();
  }
}

ColumnRules columns_of(const io::Json& set, const std::string& where) {
  ColumnRules rules;
  const std::string formatting = set.value("formatting", "alpaca");
  const io::Json columns = set.value("columns", io::Json::object()),
                 tags = set.value("tags", io::Json::object());
  if (formatting != "alpaca" && formatting != "sharegpt" && formatting != "openai")
    refuse(ErrorKind::kInput, "a formatting that lft does not support", where,
           quote_text(formatting, 60), "alpaca, sharegpt or openai");
  check_preferences(set, columns, where);
  if (formatting == "alpaca") {
    if (!columns.empty()) read_columns_of(columns, kAlpaca, where, rules);
    return rules;
  }
  if (!columns.empty()) read_columns_of(columns, kShareGpt, where, rules);
  if (rules.names["messages"].empty()) rules.names["messages"] = "conversations";
  if (!tags.empty()) read_tags(tags, where, rules);
  return rules;
}

}  // namespace

std::optional<InfoPath> info_path(const std::string& path) {
  const size_t mark = path.rfind('#');
  InfoPath info{.file = path.substr(0, mark),
                .name = mark == std::string::npos ? "" : path.substr(mark + 1)};
  const bool is_named = info.file == kInfoFile || info.file.ends_with(std::string("/") + kInfoFile);
  if (!is_named || io::is_directory(path)) return std::nullopt;
  if (io::path_exists(info.file) && !is_info(io::read_json_file(info.file))) return std::nullopt;
  return info;
}

std::vector<std::string> info_names(const std::string& folder) {
  const std::string file = folder + "/" + kInfoFile;
  if (!io::path_exists(file)) return {};
  const io::Json json = io::read_json_file(file);
  return is_info(json) ? names_of(json) : std::vector<std::string>();
}

DataFile info_set(const InfoPath& path) {
  const io::Json json = io::read_json_file(path.file);
  const std::vector<std::string> names = names_of(json);
  if (path.name.empty() && names.size() > 1)
    refuse(ErrorKind::kInput, "a dataset_info.json of several data sets", path.file,
           join_names(names, 8), "one of them", "name it: " + path.file + "#" + names[0]);
  const std::string name = path.name.empty() ? names[0] : path.name;
  if (!json.contains(name)) {
    const std::vector<std::string> near = closest_names(name, names, 1);
    refuse(ErrorKind::kInput, "no data set of this name", path.file, quote_text(name, 80),
           join_names(names, 8), near.empty() ? "" : "write " + path.file + "#" + near[0]);
  }
  const std::string where = path.file + "#" + name, folder = folder_of(path.file);
  const io::Json& set = json[name];
  check_set(set, where);
  DataFile file{.path = folder + "/" + io::json_string(set, "file_name", where)};
  file.image_root = folder;
  try {
    file.columns = columns_of(set, where);
  } catch (const io::Json::exception& error) {
    refuse_set(where, "a malformed data set", error.what(), "write it as LLaMA-Factory documents");
  }
  return file;
}

}  // namespace lft::data
