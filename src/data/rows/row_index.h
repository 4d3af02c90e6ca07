// Where the rows of a data file stand and what is known of them, so that a start parses none and
// each row is parsed when it is asked for. Kept in a file, which is a cache: a start whose data
// file has other bytes makes it anew.
//
// A row takes 32 bytes and 4 for each of its images: its offset, the digest of its bytes (a row
// that changes while a run goes on is noticed when it is read), a hash of what it says (rows that
// say the same are held out together) and where its images' numbers stand. Which image files there
// are is known without a row, so that changed ones are found by their sizes and times.
//
// A file's bytes are not read at each start: size, inode and both times of the file stand for them
// (FileStamp), of which a write moves one that no program sets. Where they differ the content is
// hashed by all cores (a second for some GB), and the index is of use while that is the same.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/common/error.h"
#include "src/data/rows/file_stamp.h"
#include "src/data/rows/row_reader.h"
#include "src/data/store/column_file.h"

namespace lft::data {

/// Rows from `first` on, as an index is made; called by several threads in no order.
using RowVisitor = std::function<void(int64_t first, const std::vector<ReadRow>& rows)>;

class RowIndex {
 public:
  /// Of what stands in the first of the files `kept` that is of this file's bytes; else made again
  /// by all cores, with its progress. Throws what read_row_file() throws, and Stopped when a signal
  /// comes; `visit` may be empty. `shown`: what messages call the file; empty: its path.
  RowIndex(const std::string& path, const RowRules& rules, const std::vector<std::string>& kept,
           const RowVisitor& visit, const std::string& shown = "");

  int64_t size() const { return static_cast<int64_t>(digests_.size()); }
  /// Parsed anew; without turns where it is bad. DataChanged where its bytes are others than those
  /// of the index. Safe from several threads at once.
  Row row(int64_t index) const;
  const std::map<int64_t, Error>& bad() const { return bad_; }  // malformed rows
  /// Of the rows as canonical JSON, in their order, whatever their file's form; of a tar file its
  /// bytes count, too: the images lie in it.
  const std::string& hash() const { return hash_; }
  /// The same for rows with the same turns, system text and images.
  uint64_t said(int64_t index) const { return said_[static_cast<size_t>(index)]; }
  /// Numbers of the images it shows, below image_names().
  std::span<const int32_t> images(int64_t index) const;
  int64_t image_names() const { return static_cast<int64_t>(name_begin_.size()) - 1; }
  std::string image_name(int64_t number) const;

  /// The format, and keys that are not used, as each start says them.
  void tell() const { format_.tell(shown_, size(), form_); }
  bool made_anew() const { return made_anew_; }
  /// Whether one of `kept` holds it as it is.
  bool is_kept() const { return is_kept_; }
  void save(const std::string& path) const;

 private:
  friend class RowIndexMaker;
  bool load(const std::string& path);
  bool is_of_these_rules(const Columns& columns) const;
  bool take(const Columns& columns);
  void forget();
  void view();
  bool sound() const;
  int64_t place_of(int64_t index) const;

  io::FileHandle file_;
  FileStamp stamp_;
  std::string shown_;
  std::string content_;  // content_hash(), where it was made
  RowRules rules_;
  RowForm form_ = RowForm::kLines;
  bool made_anew_ = false, is_kept_ = false;
  std::string hash_;
  FileFormat format_;
  std::map<int64_t, Error> bad_;
  Columns columns_;
  std::span<const int64_t> offsets_, image_begin_, name_begin_, jumps_;
  std::span<const uint64_t> digests_, said_;
  std::span<const int32_t> image_numbers_;
  std::span<const uint8_t> names_;
};

}  // namespace lft::data
