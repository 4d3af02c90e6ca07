// The index of a data file. The first byte is the kind of the rest: 'f' changes of single
// bytes of the file written by save() (two bytes of offset and a byte to combine), 'c' a JSON
// object of columns that replaces the original, with a matching digest, 'w' the file
// itself.
#include "src/data/rows/row_index.h"
#include "src/io/files.h"
#include "src/io/json.h"
#include "tests/data/fixtures.h"
#include "tests/fuzz/targets.h"

namespace lft::fuzz {
using namespace lft::data;
using namespace lft::io;
namespace {

struct DataFile {
  test::TempDir dir;
  std::string data, kept = dir.file("kept.rows"), good;
  std::vector<Row> rows;
  Columns columns;

  DataFile() {
    data = dir.write("rows.jsonl", test::llava_row("a", "", "Q", "A") + "\n\n" +
                                       test::llava_row("b", "x.png", "<image>Q", "B") + "\n");
    rows = read_rows(data);
    open().save(kept);
    good = read_file(kept);
    columns = Columns::load(kept);
  }
  RowIndex open() const { return RowIndex(data, {}, {kept}, {}); }
};

template <class T>
void put(Columns& columns, const std::string& name, const Json& numbers) {
  std::vector<T> values;
  for (const Json& number : numbers)
    values.push_back(number.is_number_integer() ? static_cast<T>(number.get<int64_t>()) : T{0});
  columns.set(name, std::move(values));
}

void patch(Columns& columns, const Json& json) {
  for (const auto& [name, value] : json.items()) {
    if (value.is_string()) columns.facts[name] = value.get<std::string>();
    if (!value.is_array()) continue;
    if (name == "digests" || name == "said" || name == "image_keys") {
      put<uint64_t>(columns, name, value);
    } else if (name == "image_numbers") {
      put<int32_t>(columns, name, value);
    } else if (name == "names" || name == "bad") {
      put<uint8_t>(columns, name, value);
    } else {
      put<int64_t>(columns, name, value);
    }
  }
}

std::string changed_bytes(std::string bytes, std::string_view changes) {
  for (size_t i = 0; i + 3 <= changes.size(); i += 3) {
    const auto high = static_cast<uint8_t>(changes[i]), low = static_cast<uint8_t>(changes[i + 1]);
    char& byte = bytes[(high * 256u + low) % bytes.size()];
    byte = static_cast<char>(byte ^ changes[i + 2]);
  }
  return bytes;
}

}  // namespace

bool index(std::string_view bytes) {
  static const DataFile file;
  const char which = bytes.empty() ? 'w' : bytes[0];
  const std::string_view rest = bytes.substr(bytes.empty() ? 0 : 1);
  if (which == 'c') {
    Columns columns = file.columns;
    const bool is_json = reads(ErrorKind::kInput, [&] {
      const Json json = parse_json(rest, "columns");
      if (json.is_object()) patch(columns, json);
    });
    if (!is_json) return false;
    columns.save(file.kept);
  } else {
    file.dir.write("kept.rows", which == 'f' ? changed_bytes(file.good, rest) : rest);
  }
  bool taken = false;
  const bool opens = reads(ErrorKind::kInput, [&] {
    const RowIndex index = file.open();
    taken = !index.was_created();
    for (int64_t i = 0; i < index.size(); ++i) {
      const bool same = reads(ErrorKind::kInput, [&] {
        const Row row = index.row(i);
        for (const int32_t number : index.images(i)) (void)index.image_name(number);
        expect(row.turns().empty() || i < std::ssize(file.rows), "rows are those of the file");
      });
      expect(same || taken, "an index that is made again has the rows of the file");
    }
  });
  return opens && taken;
}

}  // namespace lft::fuzz
