#include "src/data/rows/row_reader.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/targets.h"

namespace lft::fuzz {
using namespace lft::data;
using namespace lft::io;

bool rows(std::string_view bytes) {
  static MemoryFile file;
  file.set(bytes);
  RowFile strict, lenient;
  const bool good = reads(ErrorKind::kInput, [&] { strict = read_row_file(file.path(), {}); });
  const bool kept =
      reads(ErrorKind::kInput, [&] { lenient = read_row_file(file.path(), {.keep_bad = true}); });
  expect(good == (kept && lenient.bad.empty()), "bad rows are kept, bad files are not");
  for (const auto& [index, error] : lenient.bad) {
    expect(index >= 0 && index < static_cast<int64_t>(lenient.rows.size()),
           "a bad row has a place");
    expect(error.kind() == ErrorKind::kInput, "a bad row is bad input");
  }
  for (const Row& row : strict.rows) {
    expect(!row.turns().empty() && !row.turns().back().answer.empty(), "a row ends with an answer");
    const Json json = row_to_json(row);
    expect(row_to_json(row_from_json(parse_json(json.dump(), "row"), "row")) == json,
           "a row reads back");
  }
  return good;
}

}  // namespace lft::fuzz
