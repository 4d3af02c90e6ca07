// Columns of numbers in a file that is a cache: a safetensors file that is read completely (a
// mapped file could be truncated while it is used). A cut, malformed or foreign file is treated as
// absent, and nothing in it is trusted beyond its types and sizes.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/io/safetensors.h"

namespace lft::data {

template <class T>
constexpr io::DType column_type();
template <>
constexpr io::DType column_type<uint8_t>() {
  return io::DType::kU8;
}
template <>
constexpr io::DType column_type<int32_t>() {
  return io::DType::kI32;
}
template <>
constexpr io::DType column_type<int64_t>() {
  return io::DType::kI64;
}
template <>
constexpr io::DType column_type<uint64_t>() {
  return io::DType::kU64;
}

/// The columns of a file. Copies share the numbers.
class Columns {
 public:
  std::map<std::string, std::string> facts;  // inputs that the columns were computed from

  template <class T>
  void set(const std::string& name, std::vector<T> values) {
    const auto kept = std::make_shared<const std::vector<T>>(std::move(values));
    columns_[name] = {column_type<T>(), kept->data(), kept->size(), kept};
  }
  /// Empty if no column has that name and type.
  template <class T>
  std::span<const T> get(const std::string& name) const {
    const auto found = columns_.find(name);
    if (found == columns_.end() || found->second.type != column_type<T>()) return {};
    return {static_cast<const T*>(found->second.data), found->second.count};
  }

  /// Writes the file atomically. kResource if it cannot be written.
  void save(const std::string& path) const;
  /// kInput if the file is missing or was not written by save().
  static Columns load(const std::string& path);

 private:
  struct Column {
    io::DType type = io::DType::kU8;
    const void* data = nullptr;
    size_t count = 0;
    std::shared_ptr<const void> keeps;  // the owner of the data
    uint64_t bytes() const { return count * static_cast<uint64_t>(io::dtype_size(type)); }
  };
  std::string digest() const;

  std::map<std::string, Column> columns_;
};

}  // namespace lft::data
