// TensorBoard event files (TFRecord framing with masked CRC32C, hand-encoded Event protobuf), scalars only.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "src/io/file_handle.h"

namespace lft {

class TensorBoardWriter {
 public:
  explicit TensorBoardWriter(const std::string& dir);  // creates dir and events.out.tfevents.<time>.<host>.<pid>.<count>
  TensorBoardWriter(const TensorBoardWriter&) = delete;
  TensorBoardWriter& operator=(const TensorBoardWriter&) = delete;
  ~TensorBoardWriter();
  void scalar(const std::string& tag, int64_t step, double value);
  void flush();

 private:
  FileHandle file_;
  std::string buffer_;
};

/// CRC-32C (Castagnoli), as iSCSI's.
uint32_t crc32c(std::string_view bytes);
/// Length, masked CRC of the length, data, masked CRC of the data.
std::string tfrecord(std::string_view data);

}  // namespace lft
