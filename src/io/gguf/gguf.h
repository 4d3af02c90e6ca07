// Reads and writes GGUF files (version 3), as defined by llama.cpp's gguf-py: keys with values,
// then tensors whose data is aligned to 32 bytes. The reader validates everything; it accepts what
// lft writes: the value types below, and tensors in F32, F16 and BF16. Independent of torch.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "src/io/safetensors.h"

namespace lft::io {

using GgufValue = std::variant<bool, int32_t, uint32_t, float, std::string, std::vector<bool>,
                               std::vector<int32_t>, std::vector<float>, std::vector<std::string>>;
using GgufKeys = std::vector<std::pair<std::string, GgufValue>>;

/// Streams tensors to a file: declare all, then append the bytes of each, in the order in which
/// they were declared. The file is fsynced by finish().
class GgufWriter {
 public:
  /// `tensors`: name, dtype (F32, F16, BF16) and shape, the slowest dimension first as in
  /// safetensors. kResource on any I/O failure.
  GgufWriter(const std::string& path, const GgufKeys& keys, std::vector<TensorInfo> tensors);
  ~GgufWriter();  // without finish() the file is deleted
  const std::vector<TensorInfo>& order() const { return tensors_; }
  /// Appends the whole next tensor.
  void append(const void* data, uint64_t bytes);
  void finish();

 private:
  void pad();

  FileHandle file_;
  std::vector<TensorInfo> tensors_;
  size_t next_ = 0;
  uint64_t written_ = 0;
};

class GgufFile {
 public:
  /// Reads and checks everything before the data. Throws kInput with file and rule.
  explicit GgufFile(const std::string& path);
  const std::string& path() const { return path_; }
  const std::map<std::string, GgufValue>& keys() const { return keys_; }
  const std::map<std::string, TensorInfo>& tensors() const { return tensors_; }
  const TensorInfo& info(const std::string& name) const;  // kInput when absent
  void read(const TensorInfo& tensor, void* destination) const;

 private:
  std::string path_;
  FileHandle file_;
  std::map<std::string, GgufValue> keys_;
  std::map<std::string, TensorInfo> tensors_;
};

}  // namespace lft::io
