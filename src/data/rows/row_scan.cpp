#include "src/data/rows/row_scan.h"

#include <algorithm>
#include <array>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/data/rows/row_scanner.h"
#include "src/data/rows/table_scanner.h"
#include "src/data/rows/tar.h"
#include "src/data/rows/tar_scanner.h"

namespace lft::data {
namespace {

constexpr int64_t kSpace = 64 << 20;  // largest gap between two rows of a file, excluding a row

/// Rows of a compressed file have no offset: each would be read from the start of the file.
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

struct OtherKind {
  std::string_view begin;
  const char *name, *next;
};
constexpr char kWriteJson[] = "write the rows as JSON lines or as Parquet";
constexpr std::array kOtherKinds = {
    OtherKind{"PK\x03\x04", "a zip archive, or a file of Excel or NumPy", kWriteJson},
    OtherKind{"version https://git-lfs", "a Git LFS pointer", "fetch the files (git lfs pull)"},
    OtherKind{"SQLite format 3", "a SQLite database", kWriteJson},
    OtherKind{"\x89HDF", "an HDF5 file", kWriteJson},
    OtherKind{"\x93NUMPY", "an array of NumPy", kWriteJson},
    OtherKind{"\x80\x02", "a pickle of Python", kWriteJson},
    OtherKind{"\x80\x03", "a pickle of Python", kWriteJson},
    OtherKind{"\x80\x04", "a pickle of Python", kWriteJson},
    OtherKind{"\x80\x05", "a pickle of Python", kWriteJson},
    OtherKind{"FEA1", "a Feather file of version 1", "write it again as Arrow or Parquet"},
    OtherKind{"Obj\x01", "an Avro file", kWriteJson},
    OtherKind{"ORC", "an ORC file", kWriteJson},
    OtherKind{"%PDF", "a PDF", kWriteJson},
    OtherKind{"GGUF", "a model of llama.cpp", "name the file of the rows"},
    OtherKind{"\x89PNG", "an image", "name the file of the rows"},
    OtherKind{"\xff\xd8\xff", "an image", "name the file of the rows"},
    OtherKind{"<", "a web page or XML", "download the file again"},
    OtherKind{"---", "a YAML file", kWriteJson},
    OtherKind{"- ", "a YAML file", kWriteJson},
};
constexpr char kToUtf8[] = "convert it: iconv -f UTF-16 -t UTF-8 FILE > FILE.utf8";

/// UTF-16, detected by its byte order mark or by the zero bytes of ASCII letters.
bool is_utf16(std::string_view head) {
  if (head.starts_with("\xff\xfe") || head.starts_with("\xfe\xff")) return true;
  return head.size() > 1 && (head[0] == '\0') != (head[1] == '\0');
}

/// A text table: its first line has commas or tabs and no bracket.
bool is_table(std::string_view head) {
  const std::string_view line = head.substr(0, head.find('\n'));
  return line.find_first_of(",\t") != std::string_view::npos &&
         line.find_first_of("{}[]") == std::string_view::npos;
}

/// Refuses a file of a known kind without rows, naming the kind.
void refuse_other_kind(const io::FileHandle& file, std::string_view head) {
  if (head.starts_with("\xef\xbb\xbf")) head.remove_prefix(3);
  head.remove_prefix(std::min(head.find_first_not_of(" \t\r\n"), head.size()));
  if (head.empty() || ((head[0] == '{' || head[0] == '[') && !is_utf16(head))) return;
  const auto refused = [&](const std::string& found, const char* next) {
    refuse(ErrorKind::kInput, "the data file has no rows that lft reads", file.path(), found,
           "JSON, JSON lines, CSV, TSV, Parquet, Arrow or tar", next);
  };
  if (is_utf16(head)) refused("text in UTF-16", kToUtf8);
  for (const OtherKind& kind : kOtherKinds)
    if (head.starts_with(kind.begin)) refused(kind.name, kind.next);
  if (!table_form(file.path()) && is_table(head))
    refused("a table of text (CSV)",
            "name it .csv (columns separated by commas) or .tsv (by tabs)");
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
    case RowForm::kCsv:
      return "CSV";
    case RowForm::kTsv:
      return "TSV";
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
  return counts_lines(form) ? path + ":" + number : path + "[" + number + "]";
}

std::unique_ptr<RowScan> scan_rows(const io::FileHandle& file) {
  std::string head(std::min<uint64_t>(file.size(), kTarBlock), '\0');
  file.read_at(0, head.data(), head.size());
  refuse_compressed(file, head);
  if (is_tar(head)) return std::make_unique<TarScanner>(file);
  refuse_other_kind(file, head);
  if (is_table_file(file)) return std::make_unique<TableScanner>(file);
  return std::make_unique<RowScanner>(file);
}

RowText read_row_text(const io::FileHandle& file, RowForm form, int64_t begin, int64_t end) {
  if (form == RowForm::kTar) return read_tar_row(file, begin, end);
  if (form == RowForm::kCsv || form == RowForm::kTsv)
    return {.text = read_table_row(file, begin, end)};
  const auto most = static_cast<int64_t>(kRowLimits.max_bytes) + kSpace;
  std::string text(static_cast<size_t>(std::min(end - begin, most)), '\0');
  file.read_at(static_cast<uint64_t>(begin), text.data(), text.size());
  return {.text = std::string(trim_row(text, form == RowForm::kArray))};
}

}  // namespace lft::data
