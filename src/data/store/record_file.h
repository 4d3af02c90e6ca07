// Records of numbers with bytes, in one safetensors file that is written once: `records`, int64
// [n + 1, numbers], whose first two numbers are the offset and the digest of the record's bytes,
// and `data`, uint8. Records are read on demand; only the positions are in memory.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "src/io/file_handle.h"

namespace lft::data {

/// Collects the records of one file.
class RecordFileMaker {
 public:
  explicit RecordFileMaker(int64_t numbers) : numbers_(numbers) {}
  /// `numbers`: those of the record after the first two.
  void add(std::span<const uint8_t> bytes, std::span<const int64_t> numbers);
  int64_t count() const { return count_; }
  int64_t bytes() const { return static_cast<int64_t>(data_.size() + 8 * records_.size()); }
  /// Writes the file and clears the records. Returns their digest as text, for index.json.
  std::string write(const std::string& path);

 private:
  int64_t numbers_, count_ = 0;
  std::vector<int64_t> records_;
  std::vector<uint8_t> data_;
};

/// Limits the number of open files: a process may have about a thousand.
class FilePool {
 public:
  std::shared_ptr<const io::FileHandle> open(const std::string& path);

 private:
  struct Entry {
    std::string path;
    std::shared_ptr<const io::FileHandle> file;
  };
  std::mutex mutex_;
  std::vector<Entry> entries_;
  size_t next_ = 0;  // next file to close
};

/// Thread-safe. Damage is DataChanged.
class RecordFile {
 public:
  /// Reads the header. kInput unless it describes `count` records of `numbers` numbers. `digest` is
  /// that of RecordFileMaker::write().
  RecordFile(std::string path, int64_t count, int64_t numbers, std::string digest, FilePool& pool);
  const std::string& path() const { return path_; }
  /// The numbers of a record, followed by the offset of the next one.
  std::vector<int64_t> record(int64_t i) const;
  std::vector<uint8_t> bytes(std::span<const int64_t> record) const;

 private:
  void verify() const;
  void read(uint64_t offset, void* to, uint64_t bytes) const;

  std::string path_, digest_;
  int64_t count_, numbers_;
  uint64_t records_at_ = 0, data_at_ = 0, data_bytes_ = 0;
  FilePool* pool_;
  std::unique_ptr<std::once_flag> verified_ = std::make_unique<std::once_flag>();
};

}  // namespace lft::data
