// TensorBoard event files (TFRecord framing with masked CRC32C, hand-encoded Event protobuf):
// scalars and hyper-parameters.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "src/io/file_handle.h"
#include "src/report/hparams.h"

namespace lft::report {

class TensorBoardWriter {
 public:
  /// Creates dir and events.out.tfevents.<time>.<host>.<pid>.<count>. TensorBoard drops the content
  /// of earlier files from first_step on.
  explicit TensorBoardWriter(const std::string& dir, int64_t first_step = 1);
  TensorBoardWriter(const TensorBoardWriter&) = delete;
  TensorBoardWriter& operator=(const TensorBoardWriter&) = delete;
  ~TensorBoardWriter();
  /// Buffered until the next flush(), which is called once per step, so that a reader sees current
  /// values and a kill loses nothing.
  void scalar(const std::string& tag, int64_t step, double value);
  /// For the HParams tab: the hyper-parameters, and the tags of the scalars to compare.
  void hparams(const std::vector<HParam>& params, const std::vector<std::string>& metrics);
  /// Ends the session of that tab.
  void hparams_done(bool success);
  void flush();
  void sync();  // flush(), and the file is on the disk

 private:
  void summary(int64_t step, const std::string& message);
  io::FileHandle file_;
  std::string buffer_;
};

/// CRC-32C (Castagnoli), as in iSCSI.
uint32_t crc32c(std::string_view bytes);
/// Length, masked CRC of the length, data, masked CRC of the data.
std::string tfrecord(std::string_view data);

}  // namespace lft::report
