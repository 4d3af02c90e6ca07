// TensorBoard event files (TFRecord framing with masked CRC32C, hand-encoded Event protobuf), scalars only.
#pragma once
#include <cstdint>
#include <string>

namespace lft {

class TensorBoardWriter {
 public:
  explicit TensorBoardWriter(const std::string& dir);  // creates dir and events.out.tfevents.<time>.<host>
  ~TensorBoardWriter();
  void scalar(const std::string& tag, int64_t step, double value);
  void flush();

 private:
  int fd_ = -1;
  std::string buffer_;
};

}  // namespace lft
