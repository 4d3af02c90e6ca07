// Records of numbers and the bytes that each stands for, in one safetensors file that is written
// once: `records`, int64 [n + 1, numbers], of which a record's first two are the offset and the
// digest of its bytes, and `data`, uint8. Read piece by piece; nothing is held but where it lies.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "src/io/file_handle.h"

namespace lft::data {

/// Gathers one file's records.
class RecordFileMaker {
 public:
  explicit RecordFileMaker(int64_t numbers) : numbers_(numbers) {}
  /// `beside`: the record's numbers but the first two.
  void add(std::span<const uint8_t> bytes, std::span<const int64_t> beside);
  int64_t count() const { return count_; }
  int64_t bytes() const { return static_cast<int64_t>(data_.size() + 8 * records_.size()); }
  /// And is empty. What index.json keeps of it is the digest of its records, returned as text.
  std::string write(const std::string& path);

 private:
  int64_t numbers_, count_ = 0;
  std::vector<int64_t> records_;
  std::vector<uint8_t> data_;
};

/// Open files of many: a machine lets a process have about a thousand.
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
  size_t next_ = 0;  // to be given up
};

/// Safe from several threads at once. What is damaged is DataChanged.
class RecordFile {
 public:
  /// Reads the header. kInput where it is not one of `count` records of so many numbers. `digest`:
  /// as RecordFileMaker::write() gave it.
  RecordFile(std::string path, int64_t count, int64_t numbers, std::string digest, FilePool& pool);
  const std::string& path() const { return path_; }
  /// Its numbers, and then the next one's offset.
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
