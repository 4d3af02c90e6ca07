#include <gtest/gtest.h>

#include "src/base/errors.h"

namespace lft::errors_test {
namespace {

TEST(Errors, OneBlockWithTheSetParts) {
  const Error error(
      ErrorKind::kInput,
      {.what = "bad field", .where = "a.json:3", .found = "-1", .expected = "", .next = "fix it"});
  EXPECT_EQ(format_error(error),
            "error: bad field\n  where: a.json:3\n  found: -1\n  next: fix it\n");
  EXPECT_EQ(format_error(Error(ErrorKind::kUsage, "no recipe")), "error: no recipe\n");
}

TEST(Errors, FurtherLinesAreIndentedAndTheWordStandsOnce) {
  const Error error(
      ErrorKind::kInput,
      {.what = "two\nlines", .where = "", .found = "error: inner\n", .expected = "", .next = ""});
  EXPECT_EQ(format_error(error), "error: two\n    lines\n  found: error - inner\n");
}

TEST(Errors, HostileTextCannotMoveTheCursorOrBreakUtf8) {
  EXPECT_EQ(escape_text("a\x1b[2Jb\x7f\r\n\t"), "a\\x1b[2Jb\\x7f\\r\\n\\t");
  EXPECT_EQ(escape_text(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(escape_text("\xff\xc0\x80\xed\xa0\x80\xf5"),
            "\\xff\\xc0\\x80\\xed\\xa0\\x80\\xf5");  // never valid, overlong, surrogate, too big
  EXPECT_EQ(escape_text("\xe2\x82"), "\\xe2\\x82");  // truncated
  EXPECT_EQ(escape_text("\xe2\x80\xae"
                        "abc\xc2\x9b"),
            "\\u202eabc\\u009b");  // right-to-left override, C1
  EXPECT_EQ(escape_text("\xc3\xa9 \xe6\xbc\xa2 \xf0\x9f\x98\x80"),
            "\xc3\xa9 \xe6\xbc\xa2 \xf0\x9f\x98\x80");
}

TEST(Errors, LongTextIsCutBetweenCharacters) {
  EXPECT_EQ(escape_text("abcdef", 3), "abc...");
  EXPECT_EQ(escape_text("ab\xc3\xa9"
                        "f",
                        3),
            "ab...");
  const Error error(ErrorKind::kInput, std::string(1 << 20, 'x'));
  EXPECT_LT(format_error(error).size(), 5000u);
}

TEST(Errors, QuotesAreEscapedInQuotes) { EXPECT_EQ(quote_text("a\"b\\\n"), "\"a\\\"b\\\\\\n\""); }

TEST(Errors, BytesInPowersOfAThousand) {
  EXPECT_EQ(format_bytes(17), "17 bytes");
  EXPECT_EQ(format_bytes(2.5e9), "2.5 GB");
}

}  // namespace
}  // namespace lft::errors_test
