// GGUF files: written files read back, with the same bytes as llama.cpp's gguf-py for the same
// content, and unsound files are refused.
#include <gtest/gtest.h>

#include "src/io/files.h"
#include "src/io/gguf/gguf.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"

namespace lft::gguf_test {
using namespace lft::io;
using namespace lft::test;
namespace {

const GgufKeys kKeys = {{"general.architecture", std::string("qwen2vl")},
                        {"a.flag", true},
                        {"a.whole", uint32_t{7}},
                        {"a.signed", int32_t{-7}},
                        {"a.number", 0.5f},
                        {"a.flags", std::vector<bool>{true, false, true}},
                        {"a.wholes", std::vector<int32_t>{1, -2, 3}},
                        {"a.numbers", std::vector<float>{0.25f, -1}},
                        {"a.texts", std::vector<std::string>{"", "\xC4\xA0 a", "b"}}};

TensorInfo info(const std::string& name, DType dtype, std::vector<int64_t> shape) {
  TensorInfo info;
  info.name = name;
  info.dtype = dtype;
  info.shape = std::move(shape);
  return info;
}

void write(const std::string& path, const GgufKeys& keys = kKeys) {
  GgufWriter writer(path, keys,
                    {info("one", DType::kF32, {3}), info("two", DType::kBF16, {2, 5}),
                     info("three", DType::kF16, {2, 1, 3, 4})});
  for (size_t i = 0; i < writer.order().size(); ++i) {
    const std::string data(writer.order()[i].bytes, static_cast<char>('a' + i));
    writer.append(data.data(), data.size());
  }
  writer.finish();
}

TEST(Gguf, WhatIsWrittenReadsBack) {
  TempDir temp;
  const std::string path = temp.file("a.gguf");
  write(path);
  const GgufFile file(path);
  EXPECT_EQ(file.keys(), (std::map<std::string, GgufValue>(kKeys.begin(), kKeys.end())));
  ASSERT_EQ(file.tensors().size(), 3u);
  const TensorInfo& three = file.info("three");
  EXPECT_EQ(three.shape, (std::vector<int64_t>{2, 1, 3, 4}));
  EXPECT_EQ(three.dtype, DType::kF16);
  EXPECT_EQ(three.offset % 32, 0u);
  std::string data(three.bytes, '\0');
  file.read(three, data.data());
  EXPECT_EQ(data, std::string(48, 'c'));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "a tensor is missing", file.info("four"));
}

/// As written by gguf 0.19.0 for GGUFWriter(..., "x") with add_uint32("k", 9) and one float32
/// tensor [[1, 2, 3]] named "t", except for the order of its keys.
TEST(Gguf, TheBytesAreThoseOfGgufPy) {
  TempDir temp;
  const std::string path = temp.file("a.gguf");
  GgufWriter writer(path, {{"general.architecture", std::string("x")}, {"k", uint32_t{9}}},
                    {info("t", DType::kF32, {1, 3})});
  const float values[] = {1, 2, 3};
  writer.append(values, sizeof values);
  writer.finish();
  const auto number = [](uint64_t value, size_t bytes) {
    return std::string(reinterpret_cast<const char*>(&value), bytes);
  };
  const auto text = [&](const std::string& words) { return number(words.size(), 8) + words; };
  const std::string header = "GGUF" + number(3, 4) + number(1, 8) + number(2, 8) +
                             text("general.architecture") + number(8, 4) + text("x") + text("k") +
                             number(4, 4) + number(9, 4) + text("t") + number(2, 4) + number(3, 8) +
                             number(1, 8) + number(0, 4) + number(0, 8);
  ASSERT_EQ(header.size(), 123u);
  const std::string want = header + std::string(5, '\0') +
                           std::string(reinterpret_cast<const char*>(values), sizeof values) +
                           std::string(20, '\0');
  EXPECT_EQ(read_file(path), want);
}

TEST(Gguf, CutAnywhereItIsRefused) {
  TempDir temp;
  write(temp.file("a.gguf"));
  const std::string whole = read_file(temp.file("a.gguf"));
  const GgufFile file(temp.file("a.gguf"));
  const uint64_t end = file.info("three").offset + file.info("three").bytes;
  for (size_t bytes = 0; bytes < end; ++bytes) {
    write_file_atomic(temp.file("cut.gguf"), whole.substr(0, bytes));
    EXPECT_LFT_ERROR(ErrorKind::kInput, "", GgufFile(temp.file("cut.gguf")));
  }
}

TEST(Gguf, WhatIsNotSoundIsRefusedByItsRule) {
  TempDir temp;
  write(temp.file("a.gguf"));
  const std::string whole = read_file(temp.file("a.gguf"));
  const auto refuses = [&](const std::string& rule, size_t at, const std::string& bytes) {
    std::string changed = whole;
    changed.replace(at, bytes.size(), bytes);
    write_file_atomic(temp.file("bad.gguf"), changed);
    EXPECT_LFT_ERROR(ErrorKind::kInput, rule, GgufFile(temp.file("bad.gguf")));
  };
  refuses("does not begin with GGUF", 0, "FUGG");
  refuses("another version", 4, "\x02");
  refuses("too many entries", 12, "\xff");
  refuses("too many entries", 20, "\xff");
  refuses("a text is too long", 24, "\xff\xff\xff\xff");
  const size_t flag = whole.find("a.flag") + 6;
  refuses("neither true nor false", flag + 4, "\x02");
  refuses("of a kind that lft does not write", flag, "\x0c");
  refuses("more elements than bytes", whole.find("a.wholes") + 8 + 8, "\xff\xff\xff\xff");
  refuses("a key comes twice", whole.find("a.whole"), "a.flags");
  const size_t one = whole.rfind("one");
  refuses("too many dimensions", one + 3, "\x05");
  refuses("a size is out of range", one + 7, std::string(8, '\0'));
  refuses("of a type that lft does not write", one + 15, "\x02");
  refuses("does not follow the one before", one + 19, "\x20");
  refuses("a tensor comes twice", whole.rfind("two"), "one");
}

TEST(Gguf, ATensorOutOfTurnIsABug) {
  TempDir temp;
  GgufWriter writer(temp.file("a.gguf"), {}, {info("one", DType::kF32, {3})});
  EXPECT_LFT_ERROR(ErrorKind::kInternal, "not the tensor that comes next", writer.append("abc", 3));
  EXPECT_LFT_ERROR(ErrorKind::kInternal, "fewer tensors", writer.finish());
  EXPECT_LFT_ERROR(ErrorKind::kInternal, "no GGUF tensor of I32",
                   GgufWriter(temp.file("b.gguf"), {}, {info("one", DType::kI32, {3})}));
}

}  // namespace
}  // namespace lft::gguf_test
