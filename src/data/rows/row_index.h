// The offsets of the rows of a data file and facts about them, so that a start parses no row and
// each row is parsed on demand. It is saved to a file, which is a cache: where the data file has
// other bytes it is created again.
//
// A row takes 32 bytes and 4 for each of its images: its offset, the digest of its bytes (with
// which a change during a run is detected), a hash of its content and the position of its image
// numbers. The image files are listed without parsing rows, so that changed ones are found by their
// sizes and times; an embedded image has a hash of its bytes. Rows of equal content, or with an
// equal image, are held out together.
//
// The bytes of the file are not read at each start: they are identified by size, inode and both
// times of the file (FileStamp), of which every write changes one that no program can set. Where
// they differ, all cores hash the content (a second for some GB), and the index stays valid where
// that hash is equal.
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

/// Called with the rows from `first` on while an index is created, by several threads in any order.
using RowVisitor = std::function<void(int64_t first, const std::vector<ReadRow>& rows)>;

class RowIndex {
 public:
  /// Loads the first of the files `kept` that was made from this file's bytes; otherwise all cores
  /// create it, with a progress line. Throws the errors of read_row_file(), and Stopped after a
  /// signal; `visit` may be empty. `shown` is the name of the file in messages; empty: its path.
  RowIndex(const std::string& path, const RowRules& rules, const std::vector<std::string>& kept,
           const RowVisitor& visit, const std::string& shown = "");

  int64_t size() const { return static_cast<int64_t>(digests_.size()); }
  /// Parses a row; a bad one has no turns. DataChanged if its bytes differ from those of the index.
  /// Thread-safe.
  Row row(int64_t index) const;
  const std::map<int64_t, Error>& bad() const { return bad_; }  // malformed rows
  /// A hash of the rows as canonical JSON in their order, independent of the form of the file; for
  /// a tar file also of its bytes, since it contains the images.
  const std::string& hash() const { return hash_; }
  /// A hash of the turns, the system text and the images of a row.
  uint64_t row_hash(int64_t index) const { return row_hashes_[static_cast<size_t>(index)]; }
  /// The numbers of the images of a row, below image_names().
  std::span<const int32_t> images(int64_t index) const;
  int64_t image_names() const { return static_cast<int64_t>(name_begin_.size()) - 1; }
  std::string image_name(int64_t number) const;
  /// embedded_key() of the image.
  uint64_t image_key(int64_t number) const { return image_keys_[static_cast<size_t>(number)]; }

  /// Logs the format and the unused keys.
  void log_summary() const { format_.log_summary(shown_, size(), form_); }
  bool was_created() const { return was_created_; }
  /// Whether one of `kept` contains it unchanged.
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
  std::string content_;  // content_hash(), once computed
  RowRules rules_;
  RowForm form_ = RowForm::kLines;
  bool was_created_ = false, is_kept_ = false;
  std::string hash_;
  FileFormat format_;
  std::map<int64_t, Error> bad_;
  Columns columns_;
  std::span<const int64_t> offsets_, image_begin_, name_begin_, jumps_;
  std::span<const uint64_t> digests_, row_hashes_, image_keys_;
  std::span<const int32_t> image_numbers_;
  std::span<const uint8_t> names_;
};

}  // namespace lft::data
