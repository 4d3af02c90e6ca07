#include "src/data/rows/row_scan.h"

#include <algorithm>
#include <array>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/data/rows/row_scanner.h"
#include "src/data/rows/tar.h"
#include "src/data/rows/tar_scanner.h"

namespace lft::data {
namespace {

constexpr int64_t kSpace = 64 << 20;  // between two rows of a file, at the most, beside a row

/// A compressed file has no place for a row: it would be read from its beginning for each.
void refuse_compressed(const io::FileHandle& file, std::string_view head) {
  struct Packer {
    std::string_view magic;
    const char *name, *unpacks;
  };
  static constexpr std::array<Packer, 4> kPackers = {{{"\x1f\x8b", "gzip", "gunzip"},
                                                      {"BZh", "bzip2", "bunzip2"},
                                                      {"\xfd"
                                                       "7zXZ",
                                                       "xz", "unxz"},
                                                      {"\x28\xb5\x2f\xfd", "zstd", "unzstd"}}};
  for (const Packer& packer : kPackers) {
    if (!head.starts_with(packer.magic)) continue;
    refuse(ErrorKind::kInput, "a compressed data file, in which no row can be found again",
           file.path(), std::string("compressed by ") + packer.name, "the file as it was before",
           std::string(packer.unpacks) + " it once");
  }
}

}  // namespace

const char* form_name(RowForm form) {
  switch (form) {
    case RowForm::kLines:
      return "JSON lines";
    case RowForm::kArray:
      return "JSON array";
    case RowForm::kTar:
      return "tar file";
  }
  return "";
}

io::FileHandle open_row_file(const std::string& path) {
  try {
    return io::FileHandle::open_to_read(path);
  } catch (const Error& error) {
    throw advised(error,
                  "name a data file; a relative path counts from the folder that lft was started "
                  "in");
  }
}

std::string row_where(const std::string& path, RowForm form, int64_t place) {
  const std::string number = std::to_string(place);
  return form == RowForm::kLines ? path + ":" + number : path + "[" + number + "]";
}

std::unique_ptr<RowScan> scan_rows(const io::FileHandle& file) {
  std::string head(std::min<uint64_t>(file.size(), kTarBlock), '\0');
  file.read_at(0, head.data(), head.size());
  refuse_compressed(file, head);
  if (is_tar(head)) return std::make_unique<TarScanner>(file);
  return std::make_unique<RowScanner>(file);
}

RowText read_row_text(const io::FileHandle& file, RowForm form, int64_t begin, int64_t end) {
  if (form == RowForm::kTar) return read_tar_row(file, begin, end);
  const auto most = static_cast<int64_t>(kRowLimits.max_bytes) + kSpace;
  std::string text(static_cast<size_t>(std::min(end - begin, most)), '\0');
  file.read_at(static_cast<uint64_t>(begin), text.data(), text.size());
  return {.text = std::string(trim_row(text, form == RowForm::kArray))};
}

}  // namespace lft::data
