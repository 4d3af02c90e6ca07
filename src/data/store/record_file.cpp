#include "src/data/store/record_file.h"

#include <algorithm>

#include "src/base/hash.h"
#include "src/data/store/data_changed.h"
#include "src/io/safetensors.h"

namespace lft::data {
namespace {

constexpr char kRecords[] = "records", kData[] = "data";
constexpr size_t kMostOpen = 128;

}  // namespace

void RecordFileMaker::add(std::span<const uint8_t> bytes, std::span<const int64_t> numbers) {
  records_.push_back(static_cast<int64_t>(data_.size()));
  records_.push_back(static_cast<int64_t>(placed_digest(bytes.data(), bytes.size(), 0)));
  records_.insert(records_.end(), numbers.begin(), numbers.end());
  data_.insert(data_.end(), bytes.begin(), bytes.end());
  ++count_;
}

std::string RecordFileMaker::write(const std::string& path) {
  records_.push_back(static_cast<int64_t>(data_.size()));
  records_.resize(static_cast<size_t>((count_ + 1) * numbers_), 0);
  io::TensorInfo records, data;
  records.name = kRecords;
  records.dtype = io::DType::kI64;
  records.shape = {count_ + 1, numbers_};
  data.name = kData;
  data.dtype = io::DType::kU8;
  data.shape = {static_cast<int64_t>(data_.size())};
  io::SafetensorsWriter writer(path, {records, data}, {{"format", "lft-prepared"}});
  for (const io::TensorInfo& tensor : writer.order()) {
    const bool is_data = tensor.name == kData;
    if (is_data && data_.empty()) continue;
    writer.append(is_data ? static_cast<const void*>(data_.data()) : records_.data(),
                  is_data ? data_.size() : 8 * records_.size());
  }
  writer.finish();
  std::string digest = std::to_string(placed_digest(records_.data(), 8 * records_.size(), 0));
  *this = RecordFileMaker(numbers_);
  return digest;
}

std::shared_ptr<const io::FileHandle> FilePool::open(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(entries_, path, &Entry::path);
  if (found != entries_.end()) return found->file;
  Entry entry{path, std::make_shared<io::FileHandle>(io::FileHandle::open_to_read(path))};
  if (entries_.size() < kMostOpen) return entries_.emplace_back(std::move(entry)).file;
  next_ = (next_ + 1) % kMostOpen;
  return (entries_[next_] = std::move(entry)).file;
}

RecordFile::RecordFile(std::string path, int64_t count, int64_t numbers, std::string digest,
                       FilePool& pool)
    : path_(std::move(path)),
      digest_(std::move(digest)),
      count_(count),
      numbers_(numbers),
      pool_(&pool) {
  const io::SafetensorsFile file(path_);
  const io::TensorInfo &records = file.info(kRecords), &data = file.info(kData);
  if (records.dtype != io::DType::kI64 ||
      records.shape != std::vector<int64_t>{count + 1, numbers} || data.dtype != io::DType::kU8 ||
      data.shape.size() != 1) {
    refuse_damaged(path_, "tensors of other types or shapes",
                   "records int64 [" + std::to_string(count + 1) + ", " + std::to_string(numbers) +
                       "], data uint8 [n]");
  }
  records_at_ = records.offset;
  data_at_ = data.offset;
  data_bytes_ = data.bytes;
}

void RecordFile::read(uint64_t offset, void* to, uint64_t bytes) const {
  try {
    pool_->open(path_)->read_at(offset, to, bytes);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput) throw;
    refuse_damaged(path_, error.what(), "what lft prepare wrote");
  }
}

/// Checks all records once: their digest, and that their bytes are contiguous within the data.
void RecordFile::verify() const {
  constexpr int64_t kAtATime = 16 << 10;  // records
  uint64_t sum = 0;
  int64_t last = 0;
  for (int64_t first = 0; first <= count_; first += kAtATime) {
    const int64_t count = std::min(kAtATime, count_ + 1 - first);
    std::vector<int64_t> numbers(static_cast<size_t>(count * numbers_));
    const auto offset = static_cast<uint64_t>(8 * first * numbers_);
    read(records_at_ + offset, numbers.data(), 8 * numbers.size());
    sum += placed_digest(numbers.data(), 8 * numbers.size(), offset);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t begin = numbers[static_cast<size_t>(i * numbers_)];
      if (begin < last || static_cast<uint64_t>(begin) > data_bytes_)
        refuse_damaged(
            path_, "record " + std::to_string(first + i) + " begins at " + std::to_string(begin),
            "offsets that rise to " + std::to_string(data_bytes_));
      last = begin;
    }
  }
  if (std::to_string(sum) != digest_)
    refuse_damaged(path_, "records with the digest " + std::to_string(sum),
                   digest_ + ", as in index.json");
}

std::vector<int64_t> RecordFile::record(int64_t i) const {
  std::call_once(*verified_, [this] { verify(); });
  std::vector<int64_t> numbers(static_cast<size_t>(numbers_ + 1));
  read(records_at_ + static_cast<uint64_t>(8 * i * numbers_), numbers.data(), 8 * numbers.size());
  return numbers;
}

std::vector<uint8_t> RecordFile::bytes(std::span<const int64_t> record) const {
  const int64_t begin = record.front(), end = record.back();
  if (begin < 0 || end < begin || static_cast<uint64_t>(end) > data_bytes_)
    refuse_damaged(path_, "a record from " + std::to_string(begin) + " to " + std::to_string(end),
                   "within " + std::to_string(data_bytes_) + " bytes");
  std::vector<uint8_t> bytes(static_cast<size_t>(end - begin));
  read(data_at_ + static_cast<uint64_t>(begin), bytes.data(), bytes.size());
  if (placed_digest(bytes.data(), bytes.size(), 0) != static_cast<uint64_t>(record[1]))
    refuse_damaged(path_,
                   "bytes from " + std::to_string(begin) +
                       " on that are not those of "
                       "their digest",
                   "what lft prepare wrote");
  return bytes;
}

}  // namespace lft::data
