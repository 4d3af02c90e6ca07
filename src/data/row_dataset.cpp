#include "src/data/row_dataset.h"

#include <sys/stat.h>

#include <filesystem>
#include <stdexcept>

#include "src/base/hash.h"
#include "src/base/parallel.h"
#include "src/base/phase.h"
#include "src/data/encode.h"
#include "src/data/lengths.h"
#include "src/data/prepared.h"
#include "src/data/rows/row_images.h"
#include "src/data/store/data_changed.h"

namespace lft::data {
namespace {

std::vector<std::string> with_ending(const std::vector<std::string>& stems, const char* ending) {
  std::vector<std::string> files;
  for (const std::string& stem : stems) files.push_back(stem + ending);
  return files;
}

/// The path without links, or as it is written if there is no such file.
std::string resolved(const std::string& path) {
  std::error_code code;
  const std::filesystem::path file = std::filesystem::canonical(path, code);
  return code ? std::filesystem::path(path).lexically_normal().string() : file.string();
}

constexpr char kRowsEnding[] = ".rows", kLengthsEnding[] = ".lengths";

}  // namespace

RowRules row_rules(const EncodeOptions& options, const DataFile& file) {
  return {.keep_bad = options.skip_bad,
          .count_unknown = options.count_unknown,
          .count_marks = options.count_marks,
          .open_questions = options.open_questions,
          .pairs = options.pairs,
          .labelled = options.labelled,
          .all_members = file.shown.empty(),
          .columns = combined(file.columns, options.columns)};
}

std::string image_root_of(const std::string& image_root, const DataFile& file) {
  return image_root.empty() ? file.image_root : image_root;
}

RowDataset::RowDataset(const DataFile& file, const std::string& image_root,
                       const text::Tokenizer& tokenizer, EncodeOptions options, const IndexUse& use)
    : image_root_(image_root_of(image_root, file)),
      tokenizer_(tokenizer),
      options_(std::move(options)),
      kept_(use.kept) {
  kept_.push_back((file.shown.empty() ? file.path : file.shown) + kIndexSuffix);
  LengthCollector lengths;
  const RowVisitor measure = [&](int64_t first, const std::vector<ReadRow>& rows) {
    std::vector<SampleLength> part;
    for (const ReadRow& read : rows) part.push_back(measured(read));
    lengths.add(first, std::move(part));
  };
  index_ = std::make_unique<RowIndex>(file.path, row_rules(options_, file),
                                      with_ending(kept_, kRowsEnding),
                                      use.lengths ? measure : RowVisitor(), file.shown);
  index_->log_summary();
  if (use.lengths && index_->was_created()) lengths_.emplace(lengths.take());
}

int64_t RowDataset::check(int64_t index) const {
  if (index < 0 || index >= index_->size()) throw std::out_of_range("row " + std::to_string(index));
  return index;
}

Sample RowDataset::get(int64_t index) const {
  const auto bad = index_->bad().find(index);
  if (bad != index_->bad().end()) throw Error(bad->second);
  return encode_row(row(index), image_root_, tokenizer_, options_);
}

/// A bad row is measured again: an image that was missing may exist now.
SampleLength RowDataset::length(int64_t index) const {
  const auto bad = index_->bad().find(index);
  if (bad != index_->bad().end()) throw Error(bad->second);
  if (lengths_) {
    const SampleLength length = lengths_->at(check(index));
    if (length.tokens > 0) return length;
  }
  return row_length(row(index), image_root_, tokenizer_, options_);
}

/// The length of a row; empty for a bad row.
SampleLength RowDataset::measured(const ReadRow& read) const {
  if (read.bad) return {};
  try {
    return row_length(read.row, image_root_, tokenizer_, options_);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput) throw;
    return {};
  }
}

/// Everything that determines a row's length: rows, rules, and the images by size and time.
std::string RowDataset::lengths_key() const {
  constexpr int kOrientations = 3;  // version of the rules for lengths: others are stale
  io::Json key = sample_rules(options_);
  key["rows"] = index_->hash();
  key["orientations"] = kOrientations;
  key["limits"] = {options_.image_limits.max_side, options_.image_limits.max_pixels,
                   options_.image_limits.max_bytes, options_.image_limits.follow_symlinks};
  Sha256 images;
  for (const ImageFile& file : image_files()) images.update(&file, sizeof file);
  key["images"] = images.hex();
  return sha256(key.dump());
}

bool RowDataset::find_lengths() const {
  const std::string key = lengths_key();
  for (const std::string& file : with_ending(kept_, kLengthsEnding)) {
    lengths_ = LengthTable::load(file, key, size());
    lengths_kept_ = lengths_.has_value();
    if (lengths_kept_) return true;
  }
  return false;
}

void RowDataset::measure(int64_t workers) const {
  const std::lock_guard lock(measuring_);
  if (lengths_ || find_lengths()) return;
  std::vector<SampleLength> lengths(static_cast<size_t>(size()));
  Phase phase("counting tokens", size(), "after the token count");
  parallel_for(size(), std::max(workers, all_cores()), [&](int64_t i) {
    phase.add();
    if (!index_->bad().contains(i))
      lengths[static_cast<size_t>(i)] = measured({.row = row(i), .keys = {}, .bad = {}});
  });
  lengths_.emplace(lengths);
}

std::string RowDataset::path_of(const std::string& name) const {
  const bool is_whole = comes_with_row(name) || image_root_.empty() || name.starts_with('/');
  return is_whole ? name : image_root_ + "/" + name;
}

std::vector<std::string> RowDataset::image_paths(int64_t index) const {
  std::vector<std::string> paths;
  for (const int32_t number : image_numbers(index)) paths.push_back(path_of(image_name(number)));
  return paths;
}

std::vector<int32_t> RowDataset::image_numbers(int64_t index) const {
  const std::span<const int32_t> numbers = index_->images(check(index));
  return {numbers.begin(), numbers.end()};
}
int64_t RowDataset::images_of(int64_t index) const {
  return static_cast<int64_t>(index_->images(check(index)).size());
}
bool RowDataset::any_image() const { return image_names() > 0; }

const std::vector<ImageFile>& RowDataset::image_files() const {
  std::call_once(looked_, [this] {
    image_files_.resize(static_cast<size_t>(image_names()));
    parallel_for(image_names(), all_cores(), [this](int64_t i) {
      struct stat status {};
      if (comes_with_row(image_name(i))) return;
      if (stat(path_of(image_name(i)).c_str(), &status) != 0) return;
      image_files_[static_cast<size_t>(i)] = {.bytes = status.st_size,
                                              .seconds = status.st_mtim.tv_sec,
                                              .nanoseconds = status.st_mtim.tv_nsec};
    });
  });
  return image_files_;
}

std::vector<uint64_t> RowDataset::image_keys(int64_t index) const {
  std::call_once(keyed_, [this] {
    image_keys_.resize(static_cast<size_t>(image_names()));
    parallel_for(image_names(), all_cores(), [this](int64_t i) {
      const uint64_t embedded = index_->image_key(i);
      image_keys_[static_cast<size_t>(i)] =
          embedded != 0 ? embedded : row_content_hash(resolved(path_of(image_name(i))));
    });
  });
  std::vector<uint64_t> keys;
  for (const int32_t number : index_->images(check(index)))
    keys.push_back(image_keys_[static_cast<size_t>(number)]);
  return keys;
}

io::FileBytes RowDataset::image_bytes(int64_t index, size_t image) const {
  try {
    const Row read = row(index);
    return image < read.images.size()
               ? read_row_image(read, read.images[image], image_root_.empty() ? "." : image_root_,
                                options_.image_limits)
               : io::FileBytes();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput) throw;
    return {};
  }
}

void RowDataset::keep_index(const std::string& stem) const {
  if (!index_->is_kept()) index_->save(stem + kRowsEnding);
  const std::lock_guard lock(measuring_);
  if (lengths_ && !lengths_kept_) lengths_->save(stem + kLengthsEnding, lengths_key());
  lengths_kept_ = lengths_.has_value();
}

}  // namespace lft::data
