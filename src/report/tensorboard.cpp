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
#include "src/report/protobuf.h"

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

/// Seconds since 1970.
double unix_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// The fields every Event starts with: wall_time = 1, step = 2.
std::string event_start(int64_t step) {
  std::string event;
  put_double(&event, 1, unix_time());
  put_integer(&event, 2, static_cast<uint64_t>(step));
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
  put_little_endian(&record, data.size(), 8);
  put_little_endian(&record, masked(record), 4);
  record += data;
  put_little_endian(&record, masked(data), 4);
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
    put_integer(&start, 1, 1);  // SessionLog.status = START
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

void TensorBoardWriter::summary(int64_t step, const std::string& message) {
  std::string event = event_start(step);
  put_bytes(&event, 5, message);
  buffer_ += tfrecord(event);
}

void TensorBoardWriter::scalar(const std::string& tag, int64_t step, double value) {
  std::string summary_value, message;
  put_bytes(&summary_value, 1, tag);
  put_float(&summary_value, 2, static_cast<float>(value));  // simple_value
  put_bytes(&message, 1, summary_value);
  summary(step, message);
}

void TensorBoardWriter::hparams(const std::vector<HParam>& params,
                                const std::vector<std::string>& metrics) {
  summary(0, hparams_experiment(params, metrics, unix_time()));
  summary(0, hparams_start(params, unix_time()));
  flush();
}

void TensorBoardWriter::hparams_done(bool success) {
  summary(0, hparams_end(success, unix_time()));
  flush();
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
