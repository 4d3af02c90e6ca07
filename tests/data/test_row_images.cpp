// Images embedded in rows: data: URIs, and members of a tar file next to a sample's row.
#include <gtest/gtest.h>

#include "src/data/rows/row_images.h"
#include "src/data/rows/row_index.h"
#include "src/io/files.h"
#include "support/expect_error.h"
#include "support/tar_file.h"
#include "tests/data/fixtures.h"

namespace lft::row_images_test {
using namespace lft::data;
using namespace lft::io;
using namespace lft::test;
namespace {

std::string bytes_of(const Row& row, size_t image) {
  return std::string(read_row_image(row, row.images.at(image), "", {}));
}

/// RFC 4648, section 10.
TEST(RowImages, DataUrisAreBase64) {
  const auto text = [](const std::string& base64) {
    return *image_in_name("data:image/png;base64," + base64, "d.json[3]")->bytes;
  };
  EXPECT_EQ(text("Zg=="), "f");
  EXPECT_EQ(text("Zm8="), "fo");
  EXPECT_EQ(text("Zm9v"), "foo");
  EXPECT_EQ(text("Zm9vYmFy"), "foobar");
  EXPECT_EQ(text("////"), "\xff\xff\xff");
  EXPECT_EQ(text("+/+/"), "\xfb\xff\xbf");
  // In clients' variants: without padding, with line breaks, for URLs, escaped.
  EXPECT_EQ(text("Zg"), "f");
  EXPECT_EQ(text("Zm8"), "fo");
  EXPECT_EQ(text("Zm9v\r\nYmFy\n"), "foobar");
  EXPECT_EQ(text("-_-_"), "\xfb\xff\xbf");
  EXPECT_EQ(text("%2B/%2b/Zg%3D%3D"),
            "\xfb\xff\xbf"
            "f");
  EXPECT_EQ(*image_in_name("DATA:IMAGE/PNG;BASE64,Zg==", "x")->bytes, "f");
  for (const std::string bad : {"", "\n", "Z", "Zm9vY", "Z===", "Zg==Zg==", "Zm9v!", "Zm%ZZ"})
    EXPECT_LFT_ERROR(ErrorKind::kInput, "d.json[3]", text(bad));
  for (const std::string bad : {"data:", "data:image/png,raw", "data:image/png;base64"})
    EXPECT_LFT_ERROR(ErrorKind::kInput, "not in base64", image_in_name(bad, "x"));
}

TEST(RowImages, Base64WithoutAUriIsAnImageWhereItBeginsAsOne) {
  std::string png =
      "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGNgYGAAAAAEAAH2FzhVAAAAAElF"
      "TkSuQmCC";
  EXPECT_TRUE(image_in_name(png, "x")->bytes->starts_with("\x89PNG"));
  EXPECT_FALSE(image_in_name(png.substr(0, 40), "x"));  // a file may have such a name
  EXPECT_FALSE(image_in_name("a/" + png, "x"));
  EXPECT_FALSE(image_in_name(png + ".png", "x"));
}

/// RFC 8089.
TEST(RowImages, AFileUriIsItsPath) {
  EXPECT_EQ(path_of_name("file:///a/b.png", "x"), "/a/b.png");
  EXPECT_EQ(path_of_name("file://localhost/a%20b.png", "x"), "/a b.png");
  EXPECT_EQ(path_of_name("FILE:///a.png", "x"), "/a.png");
  EXPECT_EQ(path_of_name("a%20b.png", "x"), "a%20b.png");
  for (const std::string bad :
       {"https://host/a.png", "file://host/a.png", "s3://b/a.png", "file://"})
    EXPECT_LFT_ERROR(ErrorKind::kInput, "is a URL", path_of_name(bad, "x"));
}

/// In each format of a row; the same bytes have the same name, so that rows with the same image are
/// held out together, and the index contains no pixels.
TEST(RowImages, EveryFormatOfARowTakesDataUris) {
  const TempDir dir;
  const std::string
      uri = "data:image/png;base64,Zm9v",
      turns =
          R"("messages":[{"role":"user","content":"<image>Q"},{"role":"assistant","content":"A"}])";
  const std::vector<std::string> rows = {
      llava_row("a", uri, "<image>Q", "A"), "{\"images\":[\"" + uri + "\"]," + turns + "}",
      "{\"images\":[{\"path\":\"" + uri + "\"}]," + turns + "}",
      R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":")" + uri +
          R"("}},{"type":"text","text":"Q"}]},{"role":"assistant","content":"A"}]})"};
  std::string name;
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string path = dir.write("r.jsonl", rows[i] + "\n" + rows[i] + "\n");
    const RowIndex index(path, {}, {}, {});
    EXPECT_EQ(index.image_names(), 1) << rows[i];
    EXPECT_EQ(bytes_of(index.row(1), 0), "foo") << rows[i];
    if (i == 0) name = index.image_name(0);
    EXPECT_EQ(index.image_name(0), name);
    EXPECT_LT(name.size(), 40u);
  }
  EXPECT_LFT_ERROR(
      ErrorKind::kInput, "r.jsonl:1",
      RowIndex(dir.write("r.jsonl", llava_row("a", "data:x", "<image>Q", "A")), {}, {}, {}));
  EXPECT_LFT_ERROR(
      ErrorKind::kInput, "a URL",
      RowIndex(dir.write("r.jsonl", llava_row("a", "http://x/y", "<image>Q", "A")), {}, {}, {}));
}

TEST(RowImages, SamplesOfATarFileFindTheirImages) {
  const TempDir dir;
  const auto row = [](const std::string& images) {
    return R"({"images":)" + images +
           R"(,"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"A"}]})";
  };
  const std::string path = dir.write(
      "t.tar", tar_file({{"s/0.json", row("[]")},
                         {"s/0.1.jpg", "second"},
                         {"s/0.0.jpg", "first"},
                         {"s/0.cls", "7"},
                         {"s/1.png", "by ending"},
                         {"s/1.json", row(R"(["png"])") + "\n"},
                         {"s/2.b.PNG", "by name"},
                         {"s/2.json", row(R"(["2.b.PNG","s/2.b.PNG","data:x;base64,Zm9v"])")},
                         {"s/3.json", row("[]")}}));
  const RowIndex index(path, {}, {}, {});
  index.save(dir.file("kept.rows"));
  const RowIndex kept(path, {}, {dir.file("kept.rows")}, {});
  EXPECT_FALSE(kept.was_created());
  EXPECT_EQ(kept.hash(), index.hash());
  for (const RowIndex* each : {&index, &kept}) {
    ASSERT_EQ(each->size(), 4);
    EXPECT_EQ(each->row(0).where, path + "[0]");
    EXPECT_EQ(bytes_of(each->row(0), 0), "second");  // in file order
    EXPECT_EQ(bytes_of(each->row(0), 1), "first");
    EXPECT_EQ(bytes_of(each->row(1), 0), "by ending");
    EXPECT_EQ(bytes_of(each->row(2), 0), "by name");
    EXPECT_EQ(bytes_of(each->row(2), 1), "by name");
    EXPECT_EQ(bytes_of(each->row(2), 2), "foo");
    EXPECT_TRUE(each->row(3).images.empty());
    EXPECT_EQ(each->images(0).size(), 2u);
  }
  const std::vector<Row> all = read_rows(path);
  EXPECT_EQ(bytes_of(all[2], 1), "by name");

  // Other pixels are other data, though the rows are equal.
  std::string other = tar_file({{"s/3.json", row("[]")}, {"s/3.png", "one"}}), text = other;
  text.replace(text.find("one"), 3, "two");
  EXPECT_NE(RowIndex(dir.write("a.tar", other), {}, {}, {}).hash(),
            RowIndex(dir.write("b.tar", text), {}, {}, {}).hash());
}

TEST(RowImages, ATarFileIsRefusedByFileAndRow) {
  const TempDir dir;
  const std::string good = llava_row("a", "", "Q", "A");
  const auto refused = [&](const std::string& what, const std::string& bytes) {
    EXPECT_LFT_ERROR(ErrorKind::kInput, what, RowIndex(dir.write("t.tar", bytes), {}, {}, {}));
    EXPECT_LFT_ERROR(ErrorKind::kInput, "t.tar", read_rows(dir.file("t.tar")));
  };
  refused("t.tar[1]", tar_file({{"0.json", good}, {"1.json", "{"}}));
  refused("t.tar[0]", tar_file({{"0.json", llava_row("a", "png", "<image>Q", "A")},
                                {"0.jpg", "another ending"},
                                {"1.json", good}}));
  refused("without a row", tar_file({{"0.json", good}, {"1.jpg", "x"}}));
  refused("two rows", tar_file({{"0.json", good}, {"0.json", good}}));
  const std::string tar = tar_file({{"0.json", good}, {"1.json", good}});
  refused("cut", tar.substr(0, 1200));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "gunzip",
                   read_rows(dir.write("t.tar.gz", "\x1f\x8b\x08 ...")));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "zstd", read_rows(dir.write("t.zst", "\x28\xb5\x2f\xfd...")));
}

/// A row beyond its limit is bad, not the file.
TEST(RowImages, ARowOverTheLimitIsBad) {
  const TempDir dir;
  const std::string good = llava_row("a", "", "Q", "A"),
                    path =
                        dir.write("t.tar", tar_file({{"0.json", good},
                                                     {"1.json", std::string((64 << 20) + 1, ' ')},
                                                     {"2.json", good}}));
  const RowIndex index(path, {.keep_bad = true}, {}, {});
  EXPECT_EQ(index.size(), 3);
  ASSERT_EQ(index.bad().size(), 1u);
  EXPECT_EQ(index.bad().begin()->first, 1);
  EXPECT_EQ(index.row(2).id, "a");
}

/// A folder of tar files is one data set, in the order of their names.
TEST(RowImages, AFolderOfTarFilesIsOneDataSet) {
  const TempDir dir;
  dir.write("d/b.tar", tar_file({{"0.json", llava_row("second", "bmp", "<image>Q", "A")},
                                 {"0.bmp", bmp(8, 8, 3)}}));
  dir.write("d/a.tar", tar_file({{"0.json", llava_row("first", "", "Q", "A")}}));
  const ByteTokenizer tokenizer;
  const auto dataset = open_dataset(dir.file("d"), "", tokenizer, small_options());
  ASSERT_EQ(dataset->size(), 2);
  EXPECT_EQ(dataset->id(0), "first");
  EXPECT_EQ(dataset->source(1), 0);
  EXPECT_EQ(dataset->image_files()[0].bytes, -1);
  dir.write("x.bmp", bmp(8, 8, 3));
  const auto plain = open_dataset(dir.write("p.jsonl", llava_row("p", "x.bmp", "<image>Q", "A")),
                                  dir.path(), tokenizer, small_options());
  EXPECT_EQ(dataset->get(1).images.at(0).chw, plain->get(0).images.at(0).chw);
  EXPECT_EQ(dataset->length(1).tokens, plain->length(0).tokens);
  dataset->keep_index(dir.file("kept"));
  EXPECT_TRUE(path_exists(dir.file("kept-1.rows")));
}

}  // namespace
}  // namespace lft::row_images_test
