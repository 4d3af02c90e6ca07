#include <gtest/gtest.h>

#include "src/io/json.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"

namespace lft::json_test {
using namespace lft::io;
namespace {

void expect_refused(std::string_view text, const std::string& piece, JsonLimits limits = {}) {
  SCOPED_TRACE(std::string(text.substr(0, 80)));
  EXPECT_LFT_ERROR(ErrorKind::kInput, piece, parse_json(text, "a.json", limits));
}

TEST(Json, ReadsEveryKindOfValue) {
  const Json json = parse_json(
      R"( {"a": [1, -2, 3.5, "x\u00e9\ud83d\ude00", true, null, {}], )"
      R"("b": {"a": 18446744073709551615}} )",
      "a.json");
  EXPECT_EQ(json["a"][0], 1);
  EXPECT_EQ(json["a"][1], -2);
  EXPECT_EQ(json["a"][2], 3.5);
  EXPECT_EQ(json["a"][3], "x\xc3\xa9\xf0\x9f\x98\x80");
  EXPECT_EQ(json["a"].size(), 7u);
  EXPECT_EQ(json["b"]["a"], 18446744073709551615ull);
  EXPECT_EQ(parse_json("7", "a.json"), 7);
}

TEST(Json, RefusesWhatIsNoJson) {
  expect_refused("", "line 1");
  expect_refused("{} x", "invalid JSON");
  expect_refused("{}{}", "invalid JSON");
  expect_refused(std::string_view("{}\0\0", 4), "a NUL byte");
  expect_refused("{\"a\": 1,}", "invalid JSON");
  expect_refused("{'a': 1}", "invalid JSON");
  expect_refused("[1] // no", "invalid JSON");
  expect_refused("[NaN]", "invalid JSON");
  expect_refused("[1e999]", "invalid JSON");
  expect_refused("[01]", "invalid JSON");
  expect_refused("{\"a\"", "invalid JSON");
  expect_refused("<!DOCTYPE html>", "invalid JSON");
}

TEST(Json, RefusesBrokenText) {
  expect_refused("[\"\xff\"]", "invalid JSON");
  expect_refused("[\"\xc0\x80\"]", "invalid JSON");
  expect_refused("[\"\xed\xa0\x80\"]", "invalid JSON");
  expect_refused("[\"\\ud800\"]", "invalid JSON");
  expect_refused("[\"\x01\"]", "invalid JSON");
}

TEST(Json, SaysLineAndByte) {
  expect_refused("{\n\"a\": 1,\n\"b\": }\n", "a.json (line 3,");
  expect_refused("{\n\"a\": 1,\n\n\"a\": 2}", "a.json (line 4,");
}

TEST(Json, RefusesAKeyTwiceInTheSameObjectOnly) {
  expect_refused(R"({"a": 1, "a": 2})", "a key comes twice");
  expect_refused(R"({"x": [{"a": 1, "b": 2, "\u0061": 2}]})", "\"a\"");
  EXPECT_NO_THROW(parse_json(R"({"a": {"a": {"b": 1}}, "b": 1})", "a.json"));
}

TEST(Json, DepthIsBounded) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_NO_THROW(parse_json(nested(16), "a.json"));
  expect_refused(nested(17), "at most 16 levels");
  expect_refused(std::string(100000, '['), "nested too deeply");
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"b\":";
  expect_refused(objects, "nested too deeply");
}

TEST(Json, SizeIsBounded) {
  expect_refused("[1, 2, 3]", "at most 8 bytes", {.max_bytes = 8});
  const test::TempDir dir;
  EXPECT_LFT_ERROR(ErrorKind::kInput, "file too large",
                   read_json_file(dir.write("a.json", "[1, 2, 3]"), {.max_bytes = 8}));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "No such file", read_json_file(dir.file("missing.json")));
  EXPECT_EQ(read_json_file(dir.write("b.json", "{\"a\": 1}\n"))["a"], 1);
}

TEST(Json, EntriesAreHandedOverOneByOne) {
  std::string seen;
  parse_json_entries(
      R"({"a": {"x": [1]}, "b": 2, "a": [], "c": {}})", "a.json", {},
      [&](const std::string& key, const Json& value) { seen += key + "=" + value.dump() + ";"; });
  EXPECT_EQ(seen, R"(a={"x":[1]};b=2;a=[];c={};)");
  for (const char* text : {"[1]", "1", "null", "\"x\""}) {
    EXPECT_LFT_ERROR(
        ErrorKind::kInput, "not an object",
        parse_json_entries(text, "a.json", {}, [](const std::string&, const Json&) {}));
  }
  EXPECT_LFT_ERROR(ErrorKind::kInput, "twice",
                   parse_json_entries(R"({"a": {"x": 1, "x": 2}})", "a.json", {},
                                      [](const std::string&, const Json&) {}));
}

TEST(Json, WholeNumbersAreNeverBent) {
  const Json json = parse_json(
      R"({"ok": 7, "minus": -1, "part": 3.7, "whole": 3.0, "huge": 18446744073709551616, )"
      R"("big": 18446744073709551615, "text": "7",
                                   "flag": true, "nothing": null})",
      "config.json");
  EXPECT_EQ(json_int(json, "ok", 1, 7, "config.json"), 7);
  EXPECT_EQ(json_int(json, "minus", -1, 7, "config.json"), -1);
  for (const char* key : {"minus", "part", "whole", "huge", "big", "text", "flag", "nothing"}) {
    EXPECT_LFT_ERROR(ErrorKind::kInput, "a whole number in [1, 65536]",
                     json_int(json, key, 1, 65536, "config.json"));
  }
  EXPECT_LFT_ERROR(ErrorKind::kInput, "found: -1",
                   json_int(json, "minus", 1, 65536, "config.json"));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "found: 3.7",
                   json_int(json, "part", 1, 65536, "config.json"));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "a whole number",
                   json_int(json, "big", INT64_MIN, INT64_MAX, "config.json"));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "missing field \"gone\"",
                   json_int(json, "gone", 1, 2, "config.json"));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "not a JSON object",
                   json_int(Json::array(), "x", 1, 2, "config.json"));
}

TEST(Json, TypedAccess) {
  const Json json =
      parse_json(R"({"n": 3, "f": 0.5, "s": "x", "b": false, "o": {}, "a": [1, 2]})", "c.json");
  EXPECT_EQ(json_number(json, "n", "c.json"), 3.0);
  EXPECT_EQ(json_number(json, "f", "c.json"), 0.5);
  EXPECT_EQ(json_string(json, "s", "c.json"), "x");
  EXPECT_FALSE(json_bool(json, "b", "c.json"));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "found: \"x\"", json_number(json, "s", "c.json"));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "found: an object", json_string(json, "o", "c.json"));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "an array of 2", json_bool(json, "a", "c.json"));
}

}  // namespace
}  // namespace lft::json_test
