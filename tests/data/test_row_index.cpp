#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/fixtures.h"
#include "src/data/loader.h"
#include "src/data/rows/row_index.h"
#include "src/data/store/data_changed.h"
#include "support/expect_error.h"

namespace lft::row_index_test {
using namespace lft::data;
namespace {

using namespace lft::test;

std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string some_rows(int count, const std::string& between = "\n") {
  std::string text;
  for (int i = 0; i < count; ++i) {
    const std::string number = std::to_string(i);
    text += (i > 0 ? between : "") +
            llava_row("r" + number, i % 3 == 0 ? "" : std::to_string(i % 7) + ".bmp",
                      (i % 3 == 0 ? "Q" : "<image>\nQ") + number,
                      std::string(static_cast<size_t>(1 + i * 37 % 900), 'a'));
  }
  return text;
}

RowIndex open(const std::string& path, const std::vector<std::string>& kept = {},
              bool keep_bad = false) {
  return RowIndex(path, {.keep_bad = keep_bad, .count_unknown = false}, kept, {});
}

void expect_rows_of(const RowIndex& index, const std::string& path) {
  const std::vector<Row> rows = read_rows(path);
  ASSERT_EQ(index.size(), static_cast<int64_t>(rows.size()));
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row row = index.row(static_cast<int64_t>(i));
    EXPECT_EQ(row_to_json(row), row_to_json(rows[i]));
    EXPECT_EQ(row.where, rows[i].where);
    std::vector<std::string> names;
    for (const int32_t number : index.images(static_cast<int64_t>(i)))
      names.push_back(index.image_name(number));
    EXPECT_EQ(names, rows[i].images);
    EXPECT_EQ(index.row_hash(static_cast<int64_t>(i)), row_content_hash(row_content(rows[i])));
  }
}

TEST(RowIndex, FindsEachRowOfEveryForm) {
  const TempDir dir;
  const std::string texts[] = {some_rows(1),
                               some_rows(500),
                               some_rows(500, "\r\n\r\n  \n"),
                               "\xef\xbb\xbf\n\n" + some_rows(40) + "\n\n",
                               "[" + some_rows(300, " ,\n ") + "\n] \n",
                               " [" + some_rows(1) + "]"};
  for (const std::string& text : texts) {
    const std::string path = dir.write("rows.json", text);
    const RowIndex index = open(path);
    expect_rows_of(index, path);
    index.save(dir.file("kept.rows"));
    const RowIndex again = open(path, {dir.file("kept.rows")});
    EXPECT_FALSE(again.was_created());
    expect_rows_of(again, path);
    EXPECT_EQ(again.hash(), index.hash());
  }
}

/// More than a batch and a read block, so that rows span both.
TEST(RowIndex, RowsLieAcrossPieces) {
  const TempDir dir;
  for (const bool array : {false, true}) {
    const std::string text = some_rows(20000, array ? "," : "\n");
    const std::string path = dir.write("rows.json", array ? "[" + text + "]" : text);
    expect_rows_of(open(path), path);
  }
}

TEST(RowIndex, ErrorsAreThoseOfReadingAllRows) {
  const TempDir dir;
  const std::string good = llava_row("a", "", "Q", "A"),
                    other = R"({"messages":[{"role":"user","content":"Q"},)"
                            R"({"role":"assistant","content":"A"}]})";
  const std::string texts[] = {"",
                               "id,image",
                               "[]",
                               "[" + good,
                               "[" + good + ",",
                               "[" + good + "] x",
                               "[" + good + ",{}",
                               good + "\n{}\n" + good,
                               good + "\n" + other,
                               good + "\n{}\n" + other,
                               "[" + good + ",]"};
  for (const std::string& text : texts) {
    const std::string path = dir.write("rows.json", text);
    const auto message = [&](const auto& read) {
      return thrown_text(ErrorKind::kInput, read, __FILE__, __LINE__);
    };
    EXPECT_EQ(message([&] { open(path); }), message([&] { read_row_file(path, {}); })) << text;
  }
}

TEST(RowIndex, BadRowsAreKeptWithTheirReasonAndNamedByTheFilesPresentName) {
  const TempDir dir;
  const std::string good = llava_row("a", "", "Q", "A");
  const std::string path = dir.write("rows.jsonl", good + "\n{}\n\nnonsense\n" + good);
  open(path, {}, /*keep_bad=*/true).save(dir.file("kept.rows"));
  const std::string moved = dir.file("moved.jsonl");
  std::filesystem::rename(path, moved);
  const RowIndex index = open(moved, {dir.file("kept.rows")}, /*keep_bad=*/true);
  EXPECT_FALSE(index.was_created());
  ASSERT_EQ(index.bad().size(), 2u);
  EXPECT_EQ(index.bad().at(1).info().where, moved + ":2");
  EXPECT_TRUE(index.bad().at(2).info().where.starts_with(moved + ":4"))
      << index.bad().at(2).info().where;
  EXPECT_TRUE(index.row(1).turns().empty());
  EXPECT_EQ(index.row(3).where, moved + ":5");
  EXPECT_LFT_ERROR(ErrorKind::kInput, "moved.jsonl:2", open(moved, {dir.file("kept.rows")}));
}

TEST(RowIndex, OtherBytesAreNoticedAndOtherTimesAlone) {
  const TempDir dir;
  const std::string path = dir.write("rows.jsonl", some_rows(50)), kept = dir.file("kept.rows");
  const RowIndex first = open(path);
  first.save(kept);
  std::string changed = slurp(path);
  changed[changed.find("aaa")] = 'b';
  dir.write("rows.jsonl", changed);
  const RowIndex other = open(path, {kept});
  EXPECT_TRUE(other.was_created());
  EXPECT_NE(other.hash(), first.hash());
  expect_rows_of(other, path);
  dir.write("rows.jsonl", some_rows(51));
  EXPECT_TRUE(open(path, {kept}).was_created());
  dir.write("rows.jsonl", some_rows(50));  // rewritten, the same
  EXPECT_FALSE(open(path, {kept}).was_created());
  EXPECT_TRUE(RowIndex(path, {.keep_bad = false, .count_unknown = true}, {kept}, {}).was_created());
}

TEST(RowIndex, AStampIsTrustedOnlyWhenItsTimesWerePast) {
  constexpr int64_t kSecond = 1'000'000'000;
  FileStamp stamp{.bytes = 1, .modified = 100, .changed = 100 * kSecond, .inode = 3, .taken = 0};
  stamp.taken = 101 * kSecond;
  EXPECT_FALSE(stamp.settled());
  stamp.taken = 103 * kSecond;
  EXPECT_TRUE(stamp.settled());
  for (int64_t FileStamp::*number :
       {&FileStamp::bytes, &FileStamp::modified, &FileStamp::changed, &FileStamp::inode}) {
    FileStamp other = stamp;
    ++(other.*number);
    EXPECT_FALSE(stamp.same(other));
  }
  std::map<std::string, std::string> facts;
  stamp.write(facts);
  EXPECT_TRUE(FileStamp::read(facts)->same(stamp));
  facts["inode"] = "3x";
  EXPECT_FALSE(FileStamp::read(facts));
}

TEST(RowIndex, AnIndexThatIsCutOrChangedIsMadeAnew) {
  const TempDir dir;
  const std::string path = dir.write("rows.jsonl", some_rows(20)), kept = dir.file("kept.rows");
  open(path).save(kept);
  const std::string bytes = slurp(kept);
  for (size_t size = 0; size < bytes.size(); size += 1 + size / 7) {
    dir.write("kept.rows", bytes.substr(0, size));
    EXPECT_TRUE(open(path, {kept}).was_created()) << size;
  }
  for (size_t at = 0; at < bytes.size(); at += 13) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 4);
    dir.write("kept.rows", changed);
    expect_rows_of(open(path, {kept}), path);
  }
  std::filesystem::remove(kept);
  std::filesystem::create_directory(kept);
  expect_rows_of(open(path, {kept}), path);
}

/// With a matching digest, as an index from another source may have.
TEST(RowIndex, NumbersThatLeadOutOfTheFileAreNotBelieved) {
  const TempDir dir;
  const std::string path = dir.write("rows.jsonl", some_rows(20)), kept = dir.file("kept.rows");
  open(path).save(kept);
  const Columns good = Columns::load(kept);
  const auto forge = [&](const std::string& name, auto change) {
    Columns columns = good;
    change(columns, name);
    columns.save(kept);
    const RowIndex index = open(path, {kept});
    EXPECT_TRUE(index.was_created()) << name;
    expect_rows_of(index, path);
  };
  const auto last = [](auto type, auto value) {
    return [value](Columns& columns, const std::string& name) {
      using T = decltype(type);
      const auto old = columns.get<T>(name);
      std::vector<T> numbers(old.begin(), old.end());
      numbers.back() = static_cast<T>(value);
      columns.set(name, numbers);
    };
  };
  forge("offsets", last(int64_t{}, int64_t{1} << 60));
  forge("offsets", last(int64_t{}, -1));
  forge("image_begin", last(int64_t{}, 1000));
  forge("image_numbers", last(int32_t{}, 7));
  forge("image_numbers", last(int32_t{}, -1));
  forge("name_begin", last(int64_t{}, 1 << 20));
  forge("image_keys", [](Columns& columns, const std::string& name) {
    columns.set(name, std::vector<uint64_t>(1));
  });
  forge("digests", [](Columns& columns, const std::string& name) {
    columns.set(name, std::vector<uint64_t>(19));
  });
  forge("offsets", [](Columns& columns, const std::string& name) {
    columns.set(name, std::vector<int32_t>(21));
  });
  forge("facts", [](Columns& columns, const std::string&) { columns.facts.erase("hash"); });
  forge("facts", [](Columns& columns, const std::string&) { columns.facts["rules"] = "["; });
}

TEST(RowIndex, ARowThatChangesMeanwhileIsNoBadSample) {
  const TempDir dir;
  const ByteTokenizer tokenizer;
  EncodeOptions options = small_options();
  options.skip_bad = true;
  const std::string path = dir.write(
      "rows.jsonl", llava_row("a", "", "Q", "one") + "\n" + llava_row("b", "", "Q", "two"));
  const auto dataset = open_dataset(path, "", tokenizer, options);
  std::string changed = slurp(path);
  changed.replace(changed.find("two"), 3, "six");
  {  // in place: another file under the same name does not matter
    std::fstream out(path, std::ios::in | std::ios::out | std::ios::binary);
    out << changed;
  }
  EXPECT_EQ(dataset->row(0).turns()[0].answer, "one");
  EXPECT_THROW(dataset->get(1), DataChanged);
  Loader loader(*dataset, {.batch_size = 2, .workers = 0, .shuffle = false, .skip_bad = true});
  EXPECT_LFT_ERROR(ErrorKind::kInput, "rows.jsonl:2", loader.next());
  ASSERT_EQ(truncate(path.c_str(), 5), 0);
  EXPECT_THROW(dataset->get(0), DataChanged);
}

/// The hole is one line of 4 GiB, which is not a row; the rows after it are found.
TEST(RowIndex, AFileMayBeLargerThan4GiB) {
  const TempDir dir;
  const std::string path = dir.write("large.jsonl", llava_row("a", "", "Q", "A") + "\n");
  const int64_t beyond = (int64_t{4} << 30) + 4096;
  const std::string last = "\n" + llava_row("z", "", "Q", "Z") + "\n";
  const int file = ::open(path.c_str(), O_WRONLY);
  ASSERT_GE(file, 0);
  ASSERT_EQ(pwrite(file, last.data(), last.size(), beyond), static_cast<ssize_t>(last.size()));
  close(file);
  const RowIndex index = open(path, {}, /*keep_bad=*/true);
  ASSERT_EQ(index.size(), 3);
  EXPECT_EQ(index.row(0).id, "a");
  EXPECT_EQ(index.bad().size(), 1u);
  EXPECT_TRUE(index.bad().contains(1));
  EXPECT_EQ(index.row(2).id, "z");
  EXPECT_EQ(index.row(2).where, path + ":3");
}

}  // namespace
}  // namespace lft::row_index_test
