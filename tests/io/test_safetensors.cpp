#include <gtest/gtest.h>

#include <cstring>

#include "src/io/files.h"
#include "src/io/safetensors.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"

namespace lft::safetensors_test {
using namespace lft::io;
namespace {

std::string length_bytes(uint64_t length) {
  std::string bytes(8, '\0');
  memcpy(bytes.data(), &length, 8);
  return bytes;
}

std::string file_of(const std::string& header, size_t data_bytes) {
  return length_bytes(header.size()) + header + std::string(data_bytes, '\1');
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  uint64_t begin, uint64_t end) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]}";
}

class Safetensors : public testing::Test {
 protected:
  void accepts(const std::string& header, size_t data_bytes) {
    SCOPED_TRACE(header.substr(0, 200));
    EXPECT_NO_THROW(SafetensorsFile(dir_.write("a.safetensors", file_of(header, data_bytes))));
  }
  void refuses_bytes(const std::string& bytes, const std::string& rule) {
    SCOPED_TRACE(bytes.substr(0, 200));
    const std::string path = dir_.write("a.safetensors", bytes);
    EXPECT_LFT_ERROR(ErrorKind::kInput, rule, SafetensorsFile{path});
    EXPECT_LFT_ERROR(ErrorKind::kInput, path, SafetensorsFile{path});
  }
  void refuses(const std::string& header, size_t data_bytes, const std::string& rule) {
    refuses_bytes(file_of(header, data_bytes), rule);
  }
  test::TempDir dir_;
};

const std::string kGood = entry("a", "F32", "[2]", 0, 8);

TEST_F(Safetensors, Length) {
  refuses_bytes("", "too short");
  refuses_bytes("1234567", "too short");
  for (const uint64_t length :
       {uint64_t{0}, uint64_t{11}, uint64_t{100'000'001}, uint64_t{1} << 63, ~uint64_t{0}}) {
    refuses_bytes(length_bytes(length) + "{}        ", "the header length is impossible");
  }
}

TEST_F(Safetensors, OtherFormatsAreNamed) {
  refuses_bytes("version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer");
  refuses_bytes("<!DOCTYPE html><html></html>", "web page");
  refuses_bytes("PK\x03\x04" + std::string(40, 'x'), "convert to safetensors");
  refuses_bytes("\x80\x02" + std::string(40, 'x'), "convert to safetensors");
}

TEST_F(Safetensors, Text) {
  for (const std::string& header :
       {std::string("not json"), "{" + kGood + "} x", "{" + kGood + "}" + std::string(3, '\0'),
        std::string("{\"\xff\":1}"), std::string("{\"\\ud800\":1}")}) {
    refuses(header, 8, "JSON");
  }
  refuses("\xef\xbb\xbf{" + kGood + "}", 8, "byte order mark");
  for (const char* root : {"[]", "\"x\"", "null", "7"}) refuses(root, 0, "not an object");
  std::string nested;
  for (int i = 0; i < 100000; ++i) nested += "{\"b\":";
  refuses(nested, 0, "nested too deeply");
  accepts("{" + kGood + "}   ", 8);
  accepts("  {" + kGood + "}", 8);
  accepts("{}", 0);
}

TEST_F(Safetensors, Entry) {
  refuses(R"({"a":{"shape":[2],"data_offsets":[0,8]}})", 8, "lacks the field \"dtype\"");
  refuses(R"({"a":{"dtype":"F32","data_offsets":[0,8]}})", 8, "lacks the field \"shape\"");
  refuses(R"({"a":{"dtype":"F32","shape":[2]}})", 8, "lacks the field \"data_offsets\"");
  for (const char* dtype : {"f32", "F33", "", "F5"})
    refuses("{" + entry("a", dtype, "[2]", 0, 8) + "}", 8, "unknown dtype");
  refuses(R"({"a":{"dtype":32,"shape":[2],"data_offsets":[0,8]}})", 8, "unknown dtype");
  for (const char* value : {"7", "[]", "\"x\"", "null"})
    refuses("{\"a\":" + std::string(value) + "}", 8, "is not an object");
  for (const char* offsets : {"[8]", "[0,8,8]", "[]"}) {
    refuses(
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":" + std::string(offsets) + "}}",
        8, "bad data_offsets");
  }
  for (const char* offsets :
       {"[0,\"8\"]", "[0,8.0]", "[-1,8]", "[0,18446744073709551616]", "[0,true]", "7", "{}"}) {
    refuses(
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":" + std::string(offsets) + "}}",
        8, "bad data_offsets");
  }
  for (const char* shape : {"2", "[2.0]", "[-2]", "[\"2\"]", "[18446744073709551616]", "[[2]]"})
    refuses("{" + entry("a", "F32", shape, 0, 8) + "}", 8, "bad shape");
  refuses(R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8,
          "a key comes twice");
  refuses(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"extra":1}})", 8,
          "unknown field");
}

TEST_F(Safetensors, Size) {
  for (const char* shape :
       {"[1099511627776,1099511627776]", "[1099511627776,1099511627776,0]", "[4611686018427387904]",
        "[9223372036854775808]", "[18446744073709551615]"}) {
    refuses("{" + entry("a", "F32", shape, 0, 8) + "}", 8, "impossible shape");
  }
  refuses("{" + entry("a", "F32", "[3]", 0, 8) + "}", 8, "contradicts its shape");
  refuses("{" + entry("a", "F64", "[2]", 0, 8) + "}", 8, "contradicts its shape");
  refuses("{" + entry("a", "U8", "[1,1,1,1,1,1,1,1,1]", 0, 1) + "}", 1, "too many dimensions");
  accepts("{" + entry("a", "U8", "[1,1,1,1,1,1,1,1]", 0, 1) + "}", 1);
  accepts("{" + entry("a", "F32", "[]", 0, 4) + "}", 4);
  accepts("{" + entry("a", "F32", "[0,7]", 0, 0) + "}", 0);
  accepts("{" + entry("a", "F4", "[2,3]", 0, 3) + "}", 3);
  accepts("{" + entry("a", "F6_E2M3", "[4]", 0, 3) + "}", 3);
  refuses("{" + entry("a", "F4", "[3]", 0, 2) + "}", 2, "ends within a byte");
  refuses("{" + entry("a", "F4", "[2]", 0, 8) + "}", 8, "contradicts its shape");
}

TEST_F(Safetensors, Layout) {
  refuses("{" + entry("a", "F32", "[2]", 8, 0) + "}", 8, "ends before it begins");
  refuses("{" + entry("a", "F32", "[2]", 4, 12) + "}", 12, "a hole before tensor \"a\"");
  refuses("{" + kGood + "," + entry("b", "U8", "[1]", 9, 10) + "}", 10,
          "a hole before tensor \"b\"");
  refuses("{" + kGood + "," + entry("b", "U8", "[4]", 6, 10) + "}", 10,
          "an overlap at tensor \"b\"");
  refuses("{" + kGood + "," + entry("b", "F32", "[2]", 0, 8) + "}", 8, "an overlap");
  refuses("{" + kGood + "}", 7, "the file ends before tensor \"a\"");
  refuses("{" + kGood + "}", 9, "bytes behind the last tensor");
  refuses("{}", 1, "bytes behind the last tensor");
  refuses("{" + entry("a", "U8", "[9223372036854775807]", 0, 9223372036854775807ull) + "," +
              entry("b", "U8", "[9223372036854775807]", 9223372036854775807ull,
                    18446744073709551614ull) +
              "}",
          8, "the file ends before tensor");
  accepts("{" + entry("b", "F32", "[1]", 8, 12) + "," + kGood + "}", 12);
  accepts("{" + entry("b", "U8", "[1]", 0, 1) + "," + entry("a", "F32", "[2]", 1, 9) + "}",
          9);  // unaligned
}

TEST_F(Safetensors, Metadata) {
  refuses("{\"__metadata__\":7}", 0, "__metadata__ is not an object");
  refuses("{\"__metadata__\":\"x\"}", 0, "__metadata__ is not an object");
  refuses("{\"__metadata__\":{\"a\":7}}", 0, "is not a string");
  refuses("{\"__metadata__\":{\"a\":{\"b\":\"c\"}}}", 0, "is not a string");
  refuses("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "__metadata__ comes twice");
  refuses("{\"__metadata__\":{\"a\":\"b\",\"a\":\"c\"}}", 0, "a key comes twice");
  accepts("{\"__metadata__\":null}", 0);
  accepts("{\"__metadata__\":{\"format\":\"pt\"}}", 0);
}

TEST_F(Safetensors, Names) {
  refuses("{" + kGood + "," + kGood + "}", 8, "tensor \"a\" comes twice");
  refuses("{" + kGood + "," + entry("a", "F16", "[4]", 0, 8) + "}", 8, "tensor \"a\" comes twice");
  refuses("{" + entry("", "F32", "[2]", 0, 8) + "}", 8, "without a name");
  refuses("{" + entry("a\\u0000b", "F32", "[2]", 0, 8) + "}", 8, "a control character");
  refuses("{" + entry("a\\nb", "F32", "[2]", 0, 8) + "}", 8, "a control character");
  refuses("{" + entry(std::string(1025, 'x'), "F32", "[2]", 0, 8) + "}", 8, "at most 1024 bytes");
  refuses("{" + entry(std::string(1 << 20, 'x'), "F32", "[2]", 0, 8) + "}", 8,
          "at most 1024 bytes");
  accepts("{" + entry(std::string(1024, 'x'), "F32", "[2]", 0, 8) + "}", 8);
  accepts("{" + entry("../../etc/x", "F32", "[2]", 0, 8) + "}", 8);
}

TEST_F(Safetensors, ManyEmptyTensors) {
  std::string header = "{";
  for (int i = 0; i < 100000; ++i)
    header += (i > 0 ? "," : "") + entry("t" + std::to_string(i), "F32", "[0]", 0, 0);
  const SafetensorsFile file(dir_.write("a.safetensors", file_of(header + "}", 0)));
  EXPECT_EQ(file.tensors().size(), 100000u);
}

TEST_F(Safetensors, BoolsAreCheckedWhenTheyAreRead) {
  std::string bytes = file_of("{" + entry("b", "BOOL", "[3]", 0, 3) + "}", 3);
  char values[3];
  const SafetensorsFile good(dir_.write("good.safetensors", bytes));
  good.read(good.info("b"), values);
  bytes.back() = 2;
  const SafetensorsFile bad(dir_.write("bad.safetensors", bytes));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "neither 0 nor 1", bad.read(bad.info("b"), values));
}

TEST_F(Safetensors, AFileThatShrinksIsAShortRead) {
  const std::string path = dir_.write("a.safetensors", file_of("{" + kGood + "}", 8));
  const SafetensorsFile file(path);
  const size_t size = read_file(path).size();
  ASSERT_EQ(truncate(path.c_str(), static_cast<off_t>(size - 1)), 0);
  char values[8];
  EXPECT_LFT_ERROR(ErrorKind::kInput, "ends early", file.read(file.info("a"), values));
  // Regardless of the requested part.
  const std::string lengths =
      std::to_string(size - 1) + " bytes\n  expected: " + std::to_string(size) + " bytes";
  EXPECT_LFT_ERROR(ErrorKind::kInput, lengths, file.read_range(file.info("a"), 2, 6, values));
  EXPECT_LFT_ERROR(ErrorKind::kInput, lengths, file.read_range(file.info("a"), 7, 1, values));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "no tensor \"b\"", file.info("b"));
}

TEST_F(Safetensors, WhatIsNoRegularFileIsRefused) {
  EXPECT_LFT_ERROR(ErrorKind::kInput, "a directory", SafetensorsFile{dir_.path()});
  EXPECT_LFT_ERROR(ErrorKind::kInput, "No such file", SafetensorsFile{dir_.file("missing")});
}

TEST_F(Safetensors, WriterAndReaderAgree) {
  const std::string path = dir_.file("a.safetensors");
  const std::vector<TensorInfo> tensors = {{"b", DType::kBF16, {3}},
                                           {"z", DType::kF32, {2, 1}},
                                           {"c", DType::kU8, {5}},
                                           {"a", DType::kF32, {}},
                                           {"empty \"\\\xc3\xa9", DType::kI64, {0, 4}}};
  SafetensorsWriter writer(path, tensors, {{"format", "pt"}, {"note", "a \"quoted\"\n line"}});
  std::string order;
  unsigned char next = 0;
  for (const TensorInfo& tensor : writer.order()) {
    order += tensor.name.substr(0, 1);
    for (uint64_t i = 0; i < tensor.bytes; ++i, ++next) writer.append(&next, 1);
  }
  writer.finish();
  EXPECT_EQ(order, "eazbc");  // widest type first, then by name

  const SafetensorsFile file(path);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.metadata().at("note"), "a \"quoted\"\n line");
  ASSERT_EQ(file.tensors().size(), tensors.size());
  EXPECT_EQ(file.info("z").shape, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(file.info("a").numel(), 1);
  EXPECT_EQ(file.info("b").dtype, DType::kBF16);
  EXPECT_EQ((file.info("z").offset - 4) % 8, 0u);  // header padded to 8, "a" before it
  unsigned char values[8];
  file.read(file.info("z"), values);
  EXPECT_EQ(values[0], 4);
  file.read_range(file.info("c"), 3, 2, values);
  EXPECT_EQ(values[1], 4 + 8 + 6 + 4);
  EXPECT_LFT_ERROR(ErrorKind::kInternal, "behind the end",
                   file.read_range(file.info("c"), 3, 3, values));
}

TEST_F(Safetensors, TheSameTensorsGiveTheSameBytes) {
  const auto write = [&](const std::string& name, const std::vector<TensorInfo>& tensors) {
    SafetensorsWriter writer(dir_.file(name), tensors, {{"format", "pt"}});
    writer.append("1234", 4);
    writer.finish();
    return read_file(dir_.file(name));
  };
  EXPECT_EQ(write("a", {{"x", DType::kI16, {1}}, {"y", DType::kI16, {1}}}),
            write("b", {{"y", DType::kI16, {1}}, {"x", DType::kI16, {1}}}));
}

TEST_F(Safetensors, ReadsThePythonLibrarysFileAndWritesTheSameBytes) {
  const std::string golden = LFT_SOURCE_DIR "/tests/goldens/all_dtypes.safetensors";
  const SafetensorsFile file(golden);
  ASSERT_EQ(file.tensors().size(), 22u);
  std::vector<TensorInfo> tensors;
  for (const auto& [name, info] : file.tensors()) tensors.push_back(info);
  SafetensorsWriter writer(dir_.file("a"), tensors, file.metadata());
  for (const TensorInfo& tensor : writer.order()) {
    std::string bytes(tensor.bytes, '\0');
    file.read(file.info(tensor.name), bytes.data());
    writer.append(bytes.data(), bytes.size());
  }
  writer.finish();
  EXPECT_EQ(read_file(dir_.file("a")), read_file(golden));
  float values[6];
  file.read(file.info("f32"), values);
  EXPECT_EQ(values[5], 2.5f);
}

TEST_F(Safetensors, AnUnfinishedFileIsDeleted) {
  const std::string path = dir_.file("a.safetensors");
  {
    SafetensorsWriter writer(path, {{"a", DType::kF32, {2}}}, {});
    writer.append("1234", 4);
    EXPECT_LFT_ERROR(ErrorKind::kInternal, "more bytes", writer.append("123456789", 9));
    EXPECT_LFT_ERROR(ErrorKind::kInternal, "fewer bytes", writer.finish());
  }
  EXPECT_FALSE(path_exists(path));
}

TEST_F(Safetensors, AFullDiskIsAResourceErrorWithNumbers) {
  EXPECT_LFT_ERROR(ErrorKind::kResource, "bytes needed",
                   SafetensorsWriter("/dev/full", {{"a", DType::kF32, {2}}}, {}));
}

}  // namespace
}  // namespace lft::safetensors_test
