// Creates the RowIndex of a data file, which is read once and parsed by all cores; the results are
// appended in the order of the rows.
#pragma once
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "src/base/hash.h"
#include "src/data/rows/row_index.h"
#include "src/data/rows/row_scan.h"

namespace lft::data {

class RowIndexMaker {
 public:
  RowIndexMaker(RowIndex& index, const RowVisitor& visit);
  /// Throws the errors of the file, and Stopped. Malformed rows are entries of the index.
  void make();

 private:
  struct NamedImage {
    std::string name;
    uint64_t key = 0;  // embedded_key()
  };
  static std::vector<NamedImage> images_of(const Row& row);
  /// A parsed batch, which waits until those before it are appended.
  struct Done {
    RowBatch batch;
    std::vector<ReadRow> rows;
    std::vector<uint64_t> digests, hashes;
    std::vector<std::vector<NamedImage>> images;  // of each row
    std::string canonical;
  };
  void work(bool draws);
  bool take(RowBatch& batch);
  Done read(RowBatch batch);
  void put_down(Done done);
  void append(Done& done);
  int32_t image_number(const NamedImage& image);

  RowIndex& index_;
  const RowVisitor& visit_;
  std::mutex scanning_;
  bool scan_failed_ = false;  // guarded by scanning_
  const std::unique_ptr<RowScan> scan_;
  std::mutex putting_;
  std::condition_variable put_;
  std::map<int64_t, Done> waiting_;  // by batch number
  int64_t next_ = 0;                 // number of the next batch
  bool failed_ = false;
  std::atomic<bool> only_scans_ = false;  // the result will be an error: a malformed row or file
  std::optional<Error> mixed_;  // error of mixed formats; one of the file takes precedence
  Sha256 hash_;
  std::unordered_map<std::string, int32_t> numbers_;  // of images, by name and key
  std::vector<int64_t> offsets_, image_begin_ = {0}, name_begin_ = {0}, jumps_;
  std::vector<uint64_t> digests_, row_hashes_, image_keys_;
  std::vector<int32_t> image_numbers_;
  std::vector<uint8_t> names_;
  int64_t last_place_ = 0, end_ = 0;
};

}  // namespace lft::data
