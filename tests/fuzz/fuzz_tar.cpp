// A tar file of samples. Checksums of apparent headers are corrected, so that mutations reach
// the fields.
#include <cstdio>

#include "src/data/rows/row_images.h"
#include "src/data/rows/row_reader.h"
#include "src/data/rows/tar.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/targets.h"

namespace lft::fuzz {
using namespace lft::data;
using namespace lft::io;
namespace {

std::string with_checksums(std::string_view bytes) {
  std::string tar(bytes);
  for (size_t at = 0; at + kTarBlock <= tar.size(); at += kTarBlock) {
    if (tar.compare(at + 257, 5, "ustar") != 0) continue;
    tar.replace(at + 148, 8, 8, ' ');
    unsigned sum = 0;
    for (size_t i = 0; i < kTarBlock; ++i) sum += static_cast<unsigned char>(tar[at + i]);
    char digits[9];
    std::snprintf(digits, sizeof digits, "%06o", sum);
    tar.replace(at + 148, 8, std::string(digits, 6) + std::string("\0 ", 2));
  }
  return tar;
}

}  // namespace

bool tar(std::string_view bytes) {
  static MemoryFile memory;
  memory.set(with_checksums(bytes));
  RowFile strict, lenient;
  const bool good = reads(ErrorKind::kInput, [&] { strict = read_row_file(memory.path(), {}); });
  const bool kept =
      reads(ErrorKind::kInput, [&] { lenient = read_row_file(memory.path(), {.keep_bad = true}); });
  expect(good == (kept && lenient.bad.empty()), "bad rows are kept, bad files are not");
  for (const Row& row : lenient.rows) {
    for (const RowImage& image : row.inside) {
      const bool read = reads(ErrorKind::kInput, [&] { read_row_image(row, image.name, "", {}); });
      expect(read, "a member of a tar file that was read lies within it");
    }
  }
  const FileHandle file = FileHandle::open_to_read(memory.path());
  reads(ErrorKind::kInput, [&] {
    TarReader reader(file);
    uint64_t end = 0;
    for (TarMember member; reader.next(member);) {
      expect(member.header >= end && member.offset > member.header, "members follow one another");
      expect(member.bytes <= file.size() - member.offset, "a member within its file");
      end = member.offset + member.bytes;
    }
  });
  return good;
}

}  // namespace lft::fuzz
