#include "src/data/store/column_file.h"

#include <filesystem>

#include "kernels/common/error.h"
#include "src/base/hash.h"
#include "src/io/files.h"
#include "src/io/pages.h"

namespace lft::data {
namespace {

using Bytes = std::vector<char, io::PageAllocator<char>>;

constexpr char kFormat[] = "lft-columns-1", kDigest[] = "digest";

[[noreturn]] void refuse_columns(const std::string& path, const std::string& found) {
  refuse(ErrorKind::kInput, "not a file of columns as lft writes them", path, found);
}

}  // namespace

/// A digest of names and numbers. It detects accidents, not forgery.
std::string Columns::digest() const {
  Sha256 hash;
  for (const auto& [name, column] : columns_) {
    hash.update(name + " " + io::dtype_name(column.type) + " " + std::to_string(column.count) +
                " " + std::to_string(placed_digest(column.data, column.bytes(), 0)) + "\n");
  }
  for (const auto& [name, fact] : facts) {
    if (name != kDigest) hash.update(name + "=" + fact + "\n");
  }
  return hash.hex();
}

void Columns::save(const std::string& path) const {
  std::vector<io::TensorInfo> tensors;
  for (const auto& [name, column] : columns_) {
    io::TensorInfo info;
    info.name = name;
    info.dtype = column.type;
    info.shape = {static_cast<int64_t>(column.count)};
    tensors.push_back(info);
  }
  std::map<std::string, std::string> metadata = facts;
  metadata["format"] = kFormat;
  metadata[kDigest] = digest();
  const std::filesystem::path target(io::rooted_path(path));
  const std::string written =
      (target.parent_path() / (".tmp-" + target.filename().string())).string();
  io::SafetensorsWriter writer(written, tensors, metadata);
  for (const io::TensorInfo& tensor : writer.order()) {
    const Column& column = columns_.at(tensor.name);
    if (column.count > 0) writer.append(column.data, column.bytes());
  }
  writer.finish();
  io::rename_synced(written, target.string());
}

Columns Columns::load(const std::string& path) {
  const io::SafetensorsFile file(path);
  Columns columns;
  for (const auto& [name, tensor] : file.tensors()) {
    if (tensor.shape.size() != 1) refuse_columns(path, "tensor " + name);
    const auto bytes = std::make_shared<Bytes>(tensor.bytes);
    file.read(tensor, bytes->data());
    columns.columns_[name] = {tensor.dtype, bytes->data(), static_cast<size_t>(tensor.shape[0]),
                              bytes};
  }
  columns.facts = file.metadata();
  const auto format = columns.facts.find("format");
  if (format == columns.facts.end() || format->second != kFormat)
    refuse_columns(path, "another format");
  columns.facts.erase(format);
  const auto digest = columns.facts.find(kDigest);
  if (digest == columns.facts.end() || digest->second != columns.digest())
    refuse_columns(path, "numbers that are not those of its digest");
  columns.facts.erase(digest);
  return columns;
}

}  // namespace lft::data
