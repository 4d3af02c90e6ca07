#include "src/hf/weights_side_files.h"

#include <algorithm>
#include <filesystem>

#include "src/io/files.h"

namespace lft::hf {
namespace {

namespace fs = std::filesystem;

constexpr uintmax_t kMostBytes = 256u << 20;  // the largest vocabularies have some 40 MB
constexpr const char* kTemplates = "additional_chat_templates";

/// Extensions of text files that transformers reads. A licence has any or none.
constexpr const char* kEndings[] = {".json",     ".jinja", ".txt", ".model",
                                    ".tiktoken", ".vocab", ".py"};
constexpr const char* kLicences[] = {"LICENSE", "LICENCE", "NOTICE", "USE_POLICY"};

/// Files that lft writes, and files that describe only the base's weights or training.
constexpr const char* kOthers[] = {"config.json",       "lft_model.json",      "lft_adapter.json",
                                   "merge_report.json", "adapter_config.json", "trainer_state.json",
                                   "params.json"};
constexpr const char* kOtherEndings[] = {".index.json", "_results.json"};

bool is_side_file(const std::string& name) {
  const auto ends = [&](const char* ending) { return name.ends_with(ending); };
  const auto begins = [&](const char* licence) { return name.starts_with(licence); };
  if (std::ranges::find(kOthers, name) != std::end(kOthers)) return false;
  if (std::ranges::any_of(kOtherEndings, ends) || name.starts_with('.')) return false;
  return std::ranges::any_of(kEndings, ends) || std::ranges::any_of(kLicences, begins);
}

void copy_small(const std::string& from, const std::string& to) {
  std::error_code none;
  if (!fs::is_regular_file(from, none) || fs::file_size(from, none) > kMostBytes) return;
  io::write_file_atomic(to, io::read_file(from));
}

}  // namespace

/// All files that a processor, tokenizer, template or generation reads, and licences: every small
/// text file except those that lft writes itself, those about the base's weights or training, and
/// its README.
void copy_side_files(const std::string& from, const std::string& to) {
  for (const std::string& name : io::list_dir(from)) {
    if (is_side_file(name)) copy_small(from + "/" + name, to + "/" + name);
  }
  const std::string templates = from + "/" + kTemplates;
  if (!io::is_directory(templates)) return;
  io::make_dirs(to + "/" + kTemplates);
  for (const std::string& name : io::list_dir(templates)) {
    if (name.ends_with(".jinja"))
      copy_small(templates + "/" + name, to + "/" + kTemplates + "/" + name);
  }
}

}  // namespace lft::hf
