// The lengths of all rows of a data file, 24 bytes a row: measured once and kept beside the row
// index. What they depend on is their key.
#pragma once
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/data/store/column_file.h"
#include "src/data/store/sample.h"

namespace lft::data {

class LengthTable {
 public:
  LengthTable() = default;
  explicit LengthTable(const std::vector<SampleLength>& lengths);
  /// Of a file that save() wrote with this key for so many rows; nothing of any other.
  static std::optional<LengthTable> load(const std::string& path, const std::string& key,
                                         int64_t rows);
  void save(const std::string& path, const std::string& key) const;

  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  /// 0 tokens: the row was bad.
  SampleLength at(int64_t index) const;

 private:
  void view();
  bool sound() const;

  Columns columns_;
  std::span<const int32_t> tokens_, supervised_, cut_, figure_;
  std::span<const int64_t> reading_;
  std::span<const int64_t> figures_;  // of images, four each, which many rows share: how many,
                                      // values, tower and placed
};

/// Lengths as threads bring them, in no order.
class LengthCollector {
 public:
  void add(int64_t first, std::vector<SampleLength> lengths);
  std::vector<SampleLength> take();  // in the order of the rows

 private:
  std::mutex mutex_;
  std::map<int64_t, std::vector<SampleLength>> parts_;
};

}  // namespace lft::data
