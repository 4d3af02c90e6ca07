// The interface between the Arrow module and the program that opens it: two functions. The program
// itself does not link Arrow.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace lft::data {

inline constexpr const char* kArrowModule = "liblft_arrow.so";
inline constexpr const char* kArrowEntry = "lft_open_arrow";

/// A value without a JSON form (a time, a decimal number, a tensor) becomes an object of two
/// strings: its type, and Arrow's text for it.
inline constexpr const char *kArrowType = "arrow type", *kArrowPrinted = "printed";

/// Prefixes of bytes that begin like an image, of other bytes, and of a path without its bytes.
inline constexpr const char *kArrowImage = "arrow image:", *kArrowBytes = "arrow bytes:",
                            *kArrowPath = "arrow path:";

/// A row of a Parquet or Arrow file: its columns as a JSON object. Bytes in it are their index
/// among `images`, "0.<ending>" and so on, after their prefix.
struct ArrowRow {
  std::string json;
  struct Image {
    std::string name, bytes;
  };
  std::vector<Image> images;
};

/// The error of a file or of one of its rows.
struct ArrowFailure {
  std::string what, found, expected, next;
  int64_t row = -1;  // index in the file
};

/// The limits of one row.
struct ArrowLimits {
  uint64_t json_bytes = 0, image_bytes = 0;
};

struct ArrowFile {
  virtual ~ArrowFile() = default;
  virtual int64_t rows() const = 0;             // -1: unknown before the rows are read
  virtual uint64_t unpacked_bytes() const = 0;  // approximate size of all values
  /// Visits the rows in order; exceptions of `visit` propagate. Throws ArrowFailure.
  virtual void read(const std::function<void(int64_t row, ArrowRow&&)>& visit) = 0;
};

/// Opens a file. Throws ArrowFailure.
using ArrowEntry = ArrowFile* (*)(const std::string& path, const ArrowLimits& limits);

}  // namespace lft::data
