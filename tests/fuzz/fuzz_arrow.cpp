// A Parquet or Arrow file as read by the Arrow reader, and the resulting rows.
#include "src/data/rows/row_reader.h"
#include "src/data/sources/unpack.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/targets.h"

namespace lft::fuzz {
using namespace lft::data;
using namespace lft::io;

bool arrow(std::string_view bytes) {
  static MemoryFile file;
  file.set(bytes);
  if (!is_arrow_file(file.path())) return false;
  return reads(ErrorKind::kInput, [&] {
    int64_t next = 0;
    read_arrow_rows(file.path(), [&](int64_t row, ArrowRow&& values) {
      expect(row == next++, "rows come in order, each once");
      expect(Json::accept(values.json), "a row is JSON");
      for (const ArrowRow::Image& image : values.images)
        expect(values.json.find(":" + image.name + "\"") != std::string::npos,
               "a row names its images");
      const ReadRow read = read_row(values.json, "row", row, {});
      expect(read.bad || !read.row.turns().empty(), "a row is read or bad");
    });
    expect(next > 0, "a file without rows is refused");
  });
}

}  // namespace lft::fuzz
