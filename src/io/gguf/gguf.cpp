#include "src/io/gguf/gguf.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/common/error.h"
#include "src/base/errors.h"

namespace lft::io {
namespace {

constexpr uint32_t kMagic = 0x46554747, kVersion = 3, kAlignment = 32;  // "GGUF"
constexpr uint64_t kMostEntries = 1 << 20, kMostDims = 4, kMostName = 1 << 16;

/// Value types in the order of GgufValue, and their numbers in a file.
enum Kind : uint32_t { kUint32 = 4, kInt32 = 5, kFloat32 = 6, kBool = 7, kString = 8, kArray = 9 };
constexpr std::array<uint32_t, 9> kKinds = {kBool, kInt32, kUint32,  kFloat32, kString,
                                            kBool, kInt32, kFloat32, kString};
constexpr size_t kFirstArray = 5;

struct TypeRow {
  DType dtype;
  uint32_t ggml;
};
constexpr TypeRow kTypes[] = {{DType::kF32, 0}, {DType::kF16, 1}, {DType::kBF16, 30}};

uint64_t aligned(uint64_t offset) { return (offset + kAlignment - 1) / kAlignment * kAlignment; }

template <class T>
void put(std::string* out, T value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_text(std::string* out, const std::string& text) {
  put<uint64_t>(out, text.size());
  *out += text;
}

void put_element(std::string* out, const std::string& text) { put_text(out, text); }
void put_element(std::string* out, bool value) { put<uint8_t>(out, value ? 1 : 0); }
template <class T>
void put_element(std::string* out, T value) {
  put(out, value);
}

template <class T>
void put_value(std::string* out, const T& value) {
  put_element(out, value);
}
template <class T>
void put_value(std::string* out, const std::vector<T>& values) {
  put<uint64_t>(out, values.size());
  for (const auto& value : values) put_element(out, static_cast<T>(value));
}

void put_key(std::string* out, const std::string& key, const GgufValue& value) {
  put_text(out, key);
  if (value.index() >= kFirstArray) put<uint32_t>(out, kArray);
  put<uint32_t>(out, kKinds[value.index()]);
  std::visit([&](const auto& held) { put_value(out, held); }, value);
}

uint32_t ggml_type(DType dtype) {
  for (const TypeRow& row : kTypes) {
    if (row.dtype == dtype) return row.ggml;
  }
  throw Error(ErrorKind::kInternal, std::string("no GGUF tensor of ") + dtype_name(dtype));
}

[[noreturn]] void bad_gguf(const std::string& path, const std::string& rule,
                           const std::string& found = {}, const std::string& expected = {}) {
  refuse(ErrorKind::kInput, "not a sound GGUF file: " + rule, path, found, expected,
         "write it again with lft export");
}

/// Parses everything before the data; every read is checked against the end of the file.
class HeaderReader {
 public:
  explicit HeaderReader(const FileHandle& file) : file_(file), size_(file.size()) {}

  uint64_t at() const { return begin_ + place_; }

  template <class T>
  T number() {
    T value;
    bytes(&value, sizeof value);
    return value;
  }

  std::string text(uint64_t most) {
    const auto length = number<uint64_t>();
    if (length > most || length > left())
      bad_gguf(file_.path(), "a text is too long", std::to_string(length),
               "at most " + std::to_string(std::min(most, left())));
    std::string text(length, '\0');
    bytes(text.data(), length);
    return text;
  }

  GgufValue value(const std::string& key) {
    const auto kind = number<uint32_t>();
    if (kind == kArray) return array(key, number<uint32_t>());
    switch (kind) {
      case kBool:
        return flag(key);
      case kInt32:
        return number<int32_t>();
      case kUint32:
        return number<uint32_t>();
      case kFloat32:
        return number<float>();
      case kString:
        return text(left());
      default:
        unknown_kind(key, kind);
    }
  }

 private:
  uint64_t left() const { return size_ - at(); }

  [[noreturn]] void unknown_kind(const std::string& key, uint32_t kind) const {
    bad_gguf(file_.path(), "a value of a kind that lft does not write",
             quote_text(key) + ": " + std::to_string(kind));
  }

  bool flag(const std::string& key) {
    const auto value = number<uint8_t>();
    if (value > 1) bad_gguf(file_.path(), "neither true nor false", quote_text(key));
    return value == 1;
  }

  GgufValue array(const std::string& key, uint32_t kind) {
    const auto count = number<uint64_t>();
    if (count > left()) bad_gguf(file_.path(), "more elements than bytes", quote_text(key));
    const auto all = [&]<class T>(const T& /*kind*/, const auto& one) {
      std::vector<T> values;
      for (uint64_t i = 0; i < count; ++i) values.push_back(one());
      return values;
    };
    switch (kind) {
      case kBool:
        return all(bool{}, [&] { return flag(key); });
      case kInt32:
        return all(int32_t{}, [&] { return number<int32_t>(); });
      case kFloat32:
        return all(float{}, [&] { return number<float>(); });
      case kString:
        return all(std::string(), [&] { return text(left()); });
      default:
        unknown_kind(key, kind);
    }
  }

  void bytes(void* to, uint64_t count) {
    if (count > left()) bad_gguf(file_.path(), "it ends within its header");
    auto* out = static_cast<char*>(to);
    while (count > 0) {
      if (place_ == buffer_.size()) fill();
      const uint64_t piece = std::min<uint64_t>(count, buffer_.size() - place_);
      std::memcpy(out, buffer_.data() + place_, piece);
      out += piece;
      place_ += piece;
      count -= piece;
    }
  }

  void fill() {
    begin_ += place_;
    place_ = 0;
    buffer_.resize(std::min<uint64_t>(1 << 20, size_ - begin_));
    file_.read_at(begin_, buffer_.data(), buffer_.size());
  }

  const FileHandle& file_;
  uint64_t size_, begin_ = 0, place_ = 0;
  std::string buffer_;
};

TensorInfo read_info(HeaderReader& in, const std::string& path) {
  TensorInfo info;
  info.name = in.text(kMostName);
  const auto dims = in.number<uint32_t>();
  if (dims > kMostDims) bad_gguf(path, "too many dimensions", quote_text(info.name));
  uint64_t count = 1;
  for (uint32_t i = 0; i < dims; ++i) {
    const auto size = in.number<uint64_t>();
    if (size == 0 || size > (1ull << 40) || count > (1ull << 40) / size)
      bad_gguf(path, "a size is out of range", quote_text(info.name) + ": " + std::to_string(size));
    count *= size;
    info.shape.insert(info.shape.begin(), static_cast<int64_t>(size));
  }
  const auto type = in.number<uint32_t>();
  const auto* row = std::find_if(std::begin(kTypes), std::end(kTypes),
                                 [&](const TypeRow& each) { return each.ggml == type; });
  if (row == std::end(kTypes))
    bad_gguf(path, "a tensor of a type that lft does not write",
             quote_text(info.name) + ": " + std::to_string(type), "0 (F32), 1 (F16), 30 (BF16)");
  info.dtype = row->dtype;
  info.bytes = count * static_cast<uint64_t>(dtype_size(info.dtype));
  info.offset = in.number<uint64_t>();
  return info;
}

}  // namespace

GgufWriter::GgufWriter(const std::string& path, const GgufKeys& keys,
                       std::vector<TensorInfo> tensors)
    : tensors_(std::move(tensors)) {
  std::string header;
  put(&header, kMagic);
  put(&header, kVersion);
  put<uint64_t>(&header, tensors_.size());
  put<uint64_t>(&header, keys.size());
  for (const auto& [key, value] : keys) put_key(&header, key, value);
  uint64_t end = 0;
  for (TensorInfo& info : tensors_) {
    info.offset = aligned(end);
    info.bytes = static_cast<uint64_t>(info.numel() * dtype_size(info.dtype));
    end = info.offset + info.bytes;
    put_text(&header, info.name);
    put<uint32_t>(&header, static_cast<uint32_t>(info.shape.size()));
    for (auto size = info.shape.rbegin(); size != info.shape.rend(); ++size)
      put<uint64_t>(&header, static_cast<uint64_t>(*size));
    put<uint32_t>(&header, ggml_type(info.dtype));
    put<uint64_t>(&header, info.offset);
  }
  header.resize(aligned(header.size()), '\0');
  file_ = FileHandle::create(path, header.size() + aligned(end));
  file_.write(header.data(), header.size());
}

GgufWriter::~GgufWriter() {
  if (file_.is_open()) unlink(file_.path().c_str());
}

void GgufWriter::append(const void* data, uint64_t bytes) {
  if (next_ == tensors_.size() || bytes != tensors_[next_].bytes)
    throw Error(ErrorKind::kInternal, "not the tensor that comes next in " + file_.path());
  file_.write(data, bytes);
  written_ += bytes;
  pad();
  ++next_;
}

void GgufWriter::pad() {
  static constexpr char kZeros[kAlignment] = {};
  const uint64_t gap = aligned(written_) - written_;
  file_.write(kZeros, gap);
  written_ += gap;
}

void GgufWriter::finish() {
  if (next_ != tensors_.size())
    throw Error(ErrorKind::kInternal, "fewer tensors than were declared for " + file_.path());
  file_.sync();
  file_.close();
}

GgufFile::GgufFile(const std::string& path) : path_(path), file_(FileHandle::open_to_read(path)) {
  HeaderReader in(file_);
  if (in.number<uint32_t>() != kMagic) bad_gguf(path, "it does not begin with GGUF");
  if (const auto version = in.number<uint32_t>(); version != kVersion)
    bad_gguf(path, "another version", std::to_string(version), std::to_string(kVersion));
  const auto tensors = in.number<uint64_t>(), keys = in.number<uint64_t>();
  if (tensors > kMostEntries || keys > kMostEntries)
    bad_gguf(path, "too many entries", std::to_string(std::max(tensors, keys)));
  for (uint64_t i = 0; i < keys; ++i) {
    const std::string key = in.text(kMostName);
    if (!keys_.emplace(key, in.value(key)).second)
      bad_gguf(path, "a key comes twice", quote_text(key));
  }
  std::vector<TensorInfo> infos;
  for (uint64_t i = 0; i < tensors; ++i) infos.push_back(read_info(in, path));
  const uint64_t data = aligned(in.at()), size = file_.size();
  uint64_t end = 0;
  for (TensorInfo& info : infos) {
    if (info.offset != aligned(end))
      bad_gguf(path, "a tensor does not follow the one before", quote_text(info.name));
    end = info.offset + info.bytes;
    if (data > size || end > size - data)
      bad_gguf(path, "a tensor reaches over the end", quote_text(info.name));
    info.offset += data;
    if (!tensors_.emplace(info.name, info).second)
      bad_gguf(path, "a tensor comes twice", quote_text(info.name));
  }
}

const TensorInfo& GgufFile::info(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found != tensors_.end()) return found->second;
  bad_gguf(path_, "a tensor is missing", quote_text(name));
}

void GgufFile::read(const TensorInfo& tensor, void* destination) const {
  file_.read_at(tensor.offset, destination, tensor.bytes);
}

}  // namespace lft::io
