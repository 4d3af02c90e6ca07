// What the module of Arrow and the program that opens it know of each other: two functions. The
// program itself links nothing of Arrow's.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace lft::data {

inline constexpr const char* kArrowModule = "liblft_arrow.so";
inline constexpr const char* kArrowEntry = "lft_open_arrow";

/// A value that JSON has no form for (a time, a decimal number, a tensor) is an object of two
/// texts: its type, and how Arrow prints it.
inline constexpr const char *kArrowType = "arrow type", *kArrowPrinted = "printed";

/// Before the name of an image that is a file, while others of its row are bytes.
inline constexpr const char* kArrowPath = "arrow path:";

/// A row of a Parquet or Arrow file: its columns as a JSON object, in which an image is its place
/// among `images`, "0.<ending>" and so on, or the name of a file after kArrowPath.
struct ArrowRow {
  std::string json;
  struct Image {
    std::string name, bytes;
  };
  std::vector<Image> images;
};

/// What is wrong with a file, or with a row of it.
struct ArrowFailure {
  std::string what, found, expected, next;
  int64_t row = -1;  // of the whole file
};

/// Bounds of a row.
struct ArrowLimits {
  uint64_t json_bytes = 0, image_bytes = 0;
};

struct ArrowFile {
  virtual ~ArrowFile() = default;
  virtual int64_t rows() const = 0;             // -1: not known before they are read
  virtual uint64_t unpacked_bytes() const = 0;  // of all values, about
  /// In their order. What `visit` throws comes through. Throws ArrowFailure.
  virtual void read(const std::function<void(int64_t row, ArrowRow&&)>& visit) = 0;
};

/// Throws ArrowFailure.
using ArrowEntry = ArrowFile* (*)(const std::string& path, const ArrowLimits& limits);

}  // namespace lft::data
