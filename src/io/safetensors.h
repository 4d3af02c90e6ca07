// Reads and writes safetensors files. The reader checks every rule of the format before allocation
// and uses pread; the writer uses the order of the Python library (widest element type first, then
// by name: every tensor is aligned) and pads the header to 8 bytes, so that the same tensors give
// the same bytes. Independent of torch.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/io/file_handle.h"

namespace lft::io {

/// All types of the format, also those of which lft reads no numbers.
enum class DType {
  kBool,
  kU8,
  kI8,
  kI16,
  kU16,
  kI32,
  kU32,
  kI64,
  kU64,
  kF16,
  kBF16,
  kF32,
  kF64,
  kF8E4M3,
  kF8E5M2,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kF6E2M3,
  kF6E3M2,
  kF4,
  kC64
};
int64_t dtype_bits(DType dtype);      // of an element
int64_t dtype_size(DType dtype);      // the same in bytes, for elements of whole bytes
const char* dtype_name(DType dtype);  // "F32"

struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  uint64_t offset = 0, bytes = 0;  // offset from the start of the file
  int64_t numel() const;
};

class SafetensorsFile {
 public:
  /// Reads and checks the header. Throws kInput with file and rule.
  explicit SafetensorsFile(const std::string& path);
  const std::string& path() const { return path_; }
  const std::map<std::string, TensorInfo>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const TensorInfo& info(const std::string& name) const;  // throws kInput when absent
  /// Reads tensor.bytes bytes; a short read and a BOOL other than 0 or 1 are kInput.
  /// Thread-safe.
  void read(const TensorInfo& tensor, void* destination) const;
  void read_range(const TensorInfo& tensor, uint64_t begin, uint64_t bytes,
                  void* destination) const;

 private:
  std::string path_;
  FileHandle file_;
  std::map<std::string, TensorInfo> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// Streams tensors to a file: declare all, then append the bytes of each in the order of order().
/// The file is fsynced by finish().
class SafetensorsWriter {
 public:
  /// `tensors`: name, dtype, shape (offsets are computed). Throws kResource on any I/O failure,
  /// naming bytes needed and free on ENOSPC.
  SafetensorsWriter(const std::string& path, std::vector<TensorInfo> tensors,
                    const std::map<std::string, std::string>& metadata);
  SafetensorsWriter(SafetensorsWriter&&) = default;
  ~SafetensorsWriter();  // without finish() the file is deleted
  const std::vector<TensorInfo>& order() const { return tensors_; }  // append in this order
  void append(const void* data, uint64_t bytes);  // any piece of the data, in order
  void finish();

 private:
  FileHandle file_;
  std::vector<TensorInfo> tensors_;
  uint64_t written_ = 0, total_ = 0;
};

}  // namespace lft::io
