// CSV and TSV: RFC 4180's quotation marks, places of rows, and what is refused. The rows of a table
// are those of the same JSON lines.
#include <gtest/gtest.h>

#include <random>

#include "data/fixtures.h"
#include "src/data/rows/row_index.h"
#include "src/data/rows/row_reader.h"
#include "support/expect_error.h"

namespace lft::tables_test {
using namespace lft::data;
namespace {

using test::TempDir;

/// A row's question, answer and place.
std::vector<std::string> shown(const std::string& text, const std::string& name = "d.csv") {
  const TempDir dir;
  const std::string path = dir.write(name, text);
  std::vector<std::string> rows;
  for (const Row& row : read_rows(path)) {
    const text::Turn turn = row.turns().at(0);
    rows.push_back(turn.question + "|" + turn.answer + "|" + row.where.substr(path.size()));
  }
  return rows;
}
using Shown = std::vector<std::string>;

TEST(Tables, CellsAreThoseOfRfc4180) {
  EXPECT_EQ(shown("question,answer\nQ,A\nR,B\n"), (Shown{"Q|A|:2", "R|B|:3"}));
  EXPECT_EQ(shown("\xef\xbb\xbfquestion,answer\r\nQ,A\r\n\r\nR,B"), (Shown{"Q|A|:2", "R|B|:4"}));
  EXPECT_EQ(shown("question,answer\n\"a, \"\"b\"\"\nc\",\"A\nB\"\nR,B\n"),
            (Shown{"a, \"b\"\nc|A\nB|:2", "R|B|:5"}));
  EXPECT_EQ(shown("\"question\",\"answer\"\n\"\"\"Q\"\"\",it's 5\" wide\n"),
            (Shown{"\"Q\"|it's 5\" wide|:2"}));
  EXPECT_EQ(shown("question\tanswer\nQ, R\tA\n\"a\tb\"\tB\n", "d.tsv"),
            (Shown{"Q, R|A|:2", "a\tb|B|:3"}));
  EXPECT_EQ(shown("question\tanswer\nQ\tA\n", "D.TAB"), (Shown{"Q|A|:2"}));
  EXPECT_EQ(shown(",question, answer \n0,Q,A\n1,R,B\n"), (Shown{"Q|A|:2", "R|B|:3"}));  // pandas
  EXPECT_EQ(shown("question,answer\rQ,A\rR,B"), (Shown{"Q|A|:2", "R|B|:3"}));
  EXPECT_EQ(shown("\n\nquestion,answer\nQ,A\n"), (Shown{"Q|A|:4"}));
  EXPECT_EQ(shown("question,answer,image\nQ,A,\nR,B,a.png\n"),
            (Shown{"Q|A|:2", "<image>\nR|B|:3"}));
  EXPECT_EQ(shown("{\"question\":\"Q\",\"answer\":\"A\"}\n"), (Shown{"Q|A|:1"}));  // JSON lines
}

TEST(Tables, AreReadByIndexAsWhole) {
  const TempDir dir;
  std::string text = "id,question,answer,image\n", lines;
  for (int i = 0; i < 4000; ++i) {  // more than a batch and a read block
    const std::string number = std::to_string(i), image = i % 3 == 0 ? "a.png" : "",
                      answer = std::string(static_cast<size_t>(1 + i * 37 % 900), 'a');
    text += "r" + number + ",\"Q,\n" + number + "\",\"" + answer + "\"," + image +
            (i % 5 == 0 ? "\r\n\r\n" : "\n");
    lines += io::Json{{"id", "r" + number},
                      {"question", "Q,\n" + number},
                      {"answer", answer},
                      {"image", image}}
                 .dump() +
             "\n";
  }
  const std::string path = dir.write("rows.csv", text), json = dir.write("rows.jsonl", lines);
  const RowIndex index(path, {}, {}, {}), of_lines(json, {}, {}, {});
  EXPECT_EQ(index.hash(), of_lines.hash());
  index.save(dir.file("kept.rows"));
  const RowIndex again(path, {}, {dir.file("kept.rows")}, {});
  EXPECT_FALSE(again.was_created());
  const std::vector<Row> rows = read_rows(path);
  ASSERT_EQ(index.size(), 4000);
  for (int64_t i = 0; i < index.size(); i += 7) {
    const Row& want = rows[static_cast<size_t>(i)];
    for (const RowIndex* each : {&index, &again}) {
      EXPECT_EQ(row_to_json(each->row(i)), row_to_json(want));
      EXPECT_EQ(row_content(each->row(i)), row_content(of_lines.row(i)));
    }
  }
  const RowRules other{.columns = {.names = {{"question", "answer"}, {"answer", "question"}}}};
  EXPECT_TRUE(RowIndex(path, other, {dir.file("kept.rows")}, {}).was_created());
}

/// Files that are no table, and the row, the column and the advice that the error names.
TEST(Tables, MalformedFilesAreRefusedByName) {
  struct Bad {
    std::string name, text;
    std::vector<std::string> pieces;
  };
  const std::string head = "question,answer\n";
  const std::string nul("Q\0,A\n", 5);
  const std::vector<Bad> files = {
      {"a.csv", "", {"the data file is empty"}},
      {"a.csv", "\n\n", {"the data file is empty"}},
      {"a.csv", "\xef\xbb\xbf", {"the data file is empty"}},
      {"a.csv", head, {"the data file has no samples", "question, answer"}},
      {"a.csv", "question,answer", {"the data file has no samples"}},
      {"a.csv", head + "\n\r\n", {"the data file has no samples"}},
      {"a.csv", "question;answer\nQ;A\n", {"a table with one column", "question;answer", "commas"}},
      {"a.tsv", "question,answer\nQ,A\n", {"a table with one column", "tabs"}},
      {"a.csv", "question\nQ\n", {"a table with one column"}},
      {"a.csv", "question,answer,question\nQ,A,R\n", {"two columns with one name", "question"}},
      {"a.csv", "question,answer, question\nQ,A,R\n", {"two columns with one name"}},
      {"a.csv", "question,\xff\nQ,A\n", {"a first line that is not UTF-8"}},
      {"a.csv", "question,\"answer\nQ,A\n", {"a first line without an end", ":1"}},
      {"a.csv", "question,\"" + std::string(2u << 20, 'x') + "\n", {"a first line without an end"}},
      {"a.csv", head + "Q\n", {":2", "another number of cells", "1 cell", "2: question, answer"}},
      {"a.csv", head + "Q,A\nR,B,C\n", {":3", "3 cells"}},
      {"a.csv", head + "Q,A\n ,\n", {":3", "an empty answer"}},
      {"a.csv", head + ",A\n", {":2", "an empty question"}},
      {"a.csv", head + "Q,\"A\"B\n", {":2", "text after a closing quotation mark", "\"answer\""}},
      {"a.csv", head + "\"Q\" ,A\n", {":2", "text after a closing quotation mark"}},
      {"a.csv",
       head + "Q,A\nR,\"B\nS,C\n",
       {":3", "a quoted cell without an end", "column \"answer\"", "B\\nS,C"}},
      {"a.csv", head + "\"", {":2", "a quoted cell without an end", "column \"question\""}},
      {"a.csv", head + nul, {":2", "a NUL byte in a table", "column \"question\""}},
      {"a.csv",
       head + "Q,\xff\n",
       {":2", "a cell that is not UTF-8", "column \"answer\"", "iconv"}},
      {"a.csv", head + "Q,caf\xe9\n", {":2", "a cell that is not UTF-8"}},
      {"a.csv", head + "Q,\xed\xa0\x80\n", {":2", "a cell that is not UTF-8"}},
      {"a.csv", head + "Q," + std::string((64u << 20) + 1, 'x') + "\n", {":2", "too long"}},
      {"a.csv", head + "Q," + std::string(12u << 20, '\x01') + "\n", {":2"}},
      {"a.csv",
       "frage,antwort\nQ,A\n",
       {":2", "without a dialogue", "keys \"antwort\", \"frage\"", "data.columns"}},
      {"a.csv",
       "Q,A\nR,B\n",
       {"without a dialogue", "data.columns: {question: \"Q\", answer: \"A\"}"}},
      {"a.csv", "question,choices,label\nQ,\"['a', 'b']\",0\n", {":2", "is not a list"}},
      {"a.csv", "question,choices,label\nQ,\"[\"\"a\"\", \"\"b\"\"]\",2\n", {"names no choice"}},
      {"a.csv", "question,answer,image\nQ,A,https://x.org/a.png\n", {":2", "an image is a URL"}},
      {"a.csv", "question,answer,video\nQ,A,a.mp4\n", {":2", "does not support", "video"}},
      {"a.csv", "question,answer,photo\nQ,A,a.png\n", {":2", "a column names an image"}},
      {"a.csv", "question,answer,id\nQ,A,x\n\xff\xfe,A,x\n", {":3", "not UTF-8"}},
      {"a.csv", "\xff\xfeq\0,\0", {"text in UTF-16"}},
      {"a.csv", "PK\x03\x04,b\nQ,A\n", {"a zip archive"}},
      {"a.txt", head + "Q,A\n", {"a table of text", "name it .csv"}},
      {"a.csv", "messages,id\n\"[{\"\"role\"\": \"\"user\"\"}]\",1\n", {":2", "has no messages"}}};
  for (const Bad& bad : files) {
    const TempDir dir;
    const std::string path = dir.write(bad.name, bad.text);
    const std::string block = test::thrown_text(
        ErrorKind::kInput, [&] { read_row_file(path, {.count_unknown = true}); }, __FILE__,
        __LINE__);
    for (const std::string& piece : bad.pieces)
      EXPECT_NE(block.find(piece), std::string::npos) << piece << " in\n" << block;
    EXPECT_NE(block.find("next: "), std::string::npos) << block;
    EXPECT_EQ(test::thrown_text(
                  ErrorKind::kInput, [&] { RowIndex(path, {.count_unknown = true}, {}, {}); },
                  __FILE__, __LINE__),
              block);
  }
}

TEST(Tables, BadRowsAreLeftOutAndTheOthersKeepTheirPlaces) {
  const TempDir dir;
  const std::string path =
      dir.write("d.csv", "question,answer\nQ,A\nonly\nR,\"B\nC\"\nS,\xff\nT,D\n");
  const RowFile file = read_row_file(path, {.keep_bad = true});
  ASSERT_EQ(file.rows.size(), 5U);
  EXPECT_EQ(file.bad.size(), 2U);
  EXPECT_NE(file.bad.at(1).info().where.find("d.csv:3"), std::string::npos);
  EXPECT_NE(file.bad.at(3).info().where.find("d.csv:6"), std::string::npos);
  EXPECT_EQ(file.rows[4].where, path + ":7");
  const RowIndex index(path, {.keep_bad = true}, {}, {});
  index.save(dir.file("kept.rows"));
  const RowIndex again(path, {.keep_bad = true}, {dir.file("kept.rows")}, {});
  EXPECT_FALSE(again.was_created());
  EXPECT_EQ(again.bad().size(), 2U);
  EXPECT_EQ(again.row(4).where, path + ":7");
  EXPECT_EQ(again.row(2).turns()[0].answer, "B\nC");
}

/// Any bytes are rows, bad rows or a bad file, and a row that is found by its index is the same.
TEST(Tables, AnyBytesAreReadOrRefused) {
  const TempDir dir;
  std::mt19937 random(7);  // NOLINT: the same files in each run
  const std::string head = "question,answer,image\n",
                    body = "\"a \"\"b\"\"\",\"c\nd\",e.png\r\nf,g,\n\n\"h,i\",j,\n";
  const std::string bytes("\",\n\r\t\0\xff\\ax;{", 12);
  int good = 0, bad = 0, refused = 0;
  for (int i = 0; i < 400; ++i) {
    std::string text = i % 4 == 0 ? head + body + body : body + body;
    for (int change = 0; change < 1 + i % 3; ++change)
      text[random() % text.size()] = bytes[random() % bytes.size()];
    const std::string path = dir.write("d.csv", i % 4 == 0 ? text : head + text);
    try {
      const RowIndex index(path, {.keep_bad = true, .count_unknown = true}, {}, {});
      for (int64_t row = 0; row < index.size(); ++row) {
        const bool is_bad = index.bad().contains(row);
        EXPECT_EQ(index.row(row).messages().empty(), is_bad);
        ++(is_bad ? bad : good);
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(good, 400);
  EXPECT_GT(bad, 40);
  EXPECT_GT(refused, 20);
}

}  // namespace
}  // namespace lft::tables_test
