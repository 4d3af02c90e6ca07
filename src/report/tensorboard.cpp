#include "src/report/tensorboard.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <charconv>
#include <chrono>

#include "src/base/log.h"
#include "src/io/files.h"

namespace lft::report {
namespace {

constexpr std::string_view kFileStart = "events.out.tfevents.";

constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
    table[i] = crc;
  }
  return table;
}

template <class T>
void put_little_endian(std::string* out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) *out += static_cast<char>(value >> (8 * i));
}

void put_varint(std::string* out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) *out += static_cast<char>(value | 0x80);
  *out += static_cast<char>(value);
}

/// Protobuf wire types.
enum Wire : uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void put_key(std::string* out, uint64_t field, Wire wire) { put_varint(out, field << 3 | wire); }

void put_bytes(std::string* out, uint64_t field, std::string_view bytes) {
  put_key(out, field, kBytes);
  put_varint(out, bytes.size());
  *out += bytes;
}

/// The fields every Event starts with: wall_time = 1, step = 2.
std::string event_start(int64_t step) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  std::string event;
  put_key(&event, 1, kFixed64);
  put_little_endian(&event, std::bit_cast<uint64_t>(now.count()));
  put_key(&event, 2, kVarint);
  put_varint(&event, static_cast<uint64_t>(step));
  return event;
}

/// The time in the name of the newest event file in `dir`, or 0.
int64_t newest_file(const std::string& dir) {
  int64_t newest = 0;
  for (const std::string& name : io::list_dir(dir)) {
    if (!name.starts_with(kFileStart)) continue;
    int64_t seconds = 0;
    std::from_chars(name.data() + kFileStart.size(), name.data() + name.size(), seconds);
    newest = std::max(newest, seconds);
  }
  return newest;
}

/// TensorBoard reads the files of a folder in the order of their names: this one comes after
/// `newest`, also if two are created in one second or a clock is set back.
std::string file_name(int64_t newest) {
  static std::atomic<int> count = 0;
  char host[256] = "localhost";
  gethostname(host, sizeof host - 1);
  const auto now = std::chrono::duration_cast<std::chrono::seconds>(
      std::chrono::system_clock::now().time_since_epoch());
  return std::string(kFileStart) + std::to_string(std::max<int64_t>(now.count(), newest + 1)) +
         "." + host + "." + std::to_string(getpid()) + "." + std::to_string(count++);
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = crc_table();
  uint32_t crc = ~0u;
  for (const char c : bytes)
    crc = kTable[(crc ^ static_cast<unsigned char>(c)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

std::string tfrecord(std::string_view data) {
  const auto masked = [](std::string_view bytes) {
    return std::rotr(crc32c(bytes), 15) + 0xa282ead8u;
  };
  std::string record;
  put_little_endian(&record, static_cast<uint64_t>(data.size()));
  put_little_endian(&record, masked(record));
  record += data;
  put_little_endian(&record, masked(data));
  return record;
}

TensorBoardWriter::TensorBoardWriter(const std::string& dir, int64_t first_step) {
  io::make_dirs(dir);
  const int64_t newest = newest_file(dir);
  file_ = io::FileHandle::open_to_append(dir + "/" + file_name(newest));
  std::string event = event_start(0);
  put_bytes(&event, 3, "brain.Event:2");  // file_version
  buffer_ = tfrecord(event);
  if (first_step > 1 || newest > 0) {
    std::string start;
    put_key(&start, 1, kVarint);  // SessionLog.status
    put_varint(&start, 1);        // START
    event = event_start(first_step);
    put_bytes(&event, 7, start);  // session_log
    buffer_ += tfrecord(event);
  }
  flush();
}

TensorBoardWriter::~TensorBoardWriter() {
  try {
    flush();
  } catch (const std::exception& e) {
    warning(std::string("the last TensorBoard events are lost: ") + e.what());
  }
}

void TensorBoardWriter::scalar(const std::string& tag, int64_t step, double value) {
  std::string summary_value;
  put_bytes(&summary_value, 1, tag);
  put_key(&summary_value, 2, kFixed32);  // simple_value
  put_little_endian(&summary_value, std::bit_cast<uint32_t>(static_cast<float>(value)));
  std::string summary;
  put_bytes(&summary, 1, summary_value);
  std::string event = event_start(step);
  put_bytes(&event, 5, summary);
  buffer_ += tfrecord(event);
}

void TensorBoardWriter::flush() {
  const std::string bytes = std::move(buffer_);
  buffer_.clear();
  file_.write(bytes.data(), bytes.size());
}

void TensorBoardWriter::sync() {
  flush();
  file_.sync();
}

}  // namespace lft::report
