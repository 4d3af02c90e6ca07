#include "src/data/store/column_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "kernels/common/error.h"
#include "src/base/hash.h"
#include "src/io/files.h"

namespace lft::data {
namespace {

constexpr char kFormat[] = "lft-columns-1", kDigest[] = "digest";

[[noreturn]] void refuse_columns(const std::string& path, const std::string& found) {
  refuse(ErrorKind::kInput, "not a file of columns as lft writes them", path, found);
}

/// A file's bytes, mapped. It is written once and renamed to where it stands, never changed in
/// place.
std::shared_ptr<const void> map_file(const std::string& path, uint64_t* bytes) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat status {};
  if (fd < 0 || fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0) {
    const int code = errno;
    if (fd >= 0) close(fd);
    refuse_columns(path, fd < 0 ? strerror(code) : "no regular file, or an empty one");
  }
  const auto size = static_cast<size_t>(status.st_size);
  void* const data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  const int code = errno;
  close(fd);
  if (data == MAP_FAILED) refuse_columns(path, strerror(code));
  *bytes = size;
  return {data, [size](const void* at) { munmap(const_cast<void*>(at), size); }};
}

}  // namespace

/// Over names and numbers. Against accidents: nobody is kept from forging one.
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
  uint64_t size = 0;
  const std::shared_ptr<const void> bytes = map_file(path, &size);
  Columns columns;
  for (const auto& [name, tensor] : file.tensors()) {
    const auto width = static_cast<uint64_t>(io::dtype_size(tensor.dtype));
    if (tensor.shape.size() != 1 || tensor.offset % width != 0 ||
        tensor.offset > size || tensor.bytes > size - tensor.offset)
      refuse_columns(path, "tensor " + name);
    columns.columns_[name] = {tensor.dtype, static_cast<const char*>(bytes.get()) + tensor.offset,
                              static_cast<size_t>(tensor.shape[0]), bytes};
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
