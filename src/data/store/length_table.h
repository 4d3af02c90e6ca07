// The lengths of all rows of a data file, 32 bytes per row: measured once and saved next to the row
// index, under a key of everything that they depend on.
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
  /// Loads a file that save() wrote with this key for this number of rows; otherwise empty.
  static std::optional<LengthTable> load(const std::string& path, const std::string& key,
                                         int64_t rows);
  void save(const std::string& path, const std::string& key) const;

  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  /// 0 tokens for a bad row.
  SampleLength at(int64_t index) const;

 private:
  void view();
  bool sound() const;

  Columns columns_;
  std::span<const int32_t> tokens_, longest_, shared_, supervised_, cut_, figure_;
  std::span<const int64_t> reading_;
  std::span<const int64_t> figures_;  // five for each distinct set of images: their number, values,
                                      // tower and placed, and the number of sides
};

/// Collects lengths from threads in any order.
class LengthCollector {
 public:
  void add(int64_t first, std::vector<SampleLength> lengths);
  std::vector<SampleLength> take();  // lengths in the order of the rows

 private:
  std::mutex mutex_;
  std::map<int64_t, std::vector<SampleLength>> parts_;
};

}  // namespace lft::data
