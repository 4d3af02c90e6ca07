#include "src/io/safetensors.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/text.h"
#include "src/io/json.h"

namespace lft::io {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors is little-endian");

constexpr uint64_t kMaxHeader = 100'000'000, kMaxName = 1024, kMaxRank = 8;

struct DTypeRow {
  DType dtype;
  const char* name;
  int64_t bits;
};
/// In the order of the Python library, which writes the last type first.
constexpr DTypeRow kDTypes[] = {
    {DType::kBool, "BOOL", 8},
    {DType::kF4, "F4", 4},
    {DType::kF6E2M3, "F6_E2M3", 6},
    {DType::kF6E3M2, "F6_E3M2", 6},
    {DType::kU8, "U8", 8},
    {DType::kI8, "I8", 8},
    {DType::kF8E5M2, "F8_E5M2", 8},
    {DType::kF8E4M3, "F8_E4M3", 8},
    {DType::kF8E8M0, "F8_E8M0", 8},
    {DType::kF8E4M3Fnuz, "F8_E4M3FNUZ", 8},
    {DType::kF8E5M2Fnuz, "F8_E5M2FNUZ", 8},
    {DType::kI16, "I16", 16},
    {DType::kU16, "U16", 16},
    {DType::kF16, "F16", 16},
    {DType::kBF16, "BF16", 16},
    {DType::kI32, "I32", 32},
    {DType::kU32, "U32", 32},
    {DType::kF32, "F32", 32},
    {DType::kC64, "C64", 64},
    {DType::kF64, "F64", 64},
    {DType::kI64, "I64", 64},
    {DType::kU64, "U64", 64},
};

const DTypeRow& row_of(DType dtype) {
  return *std::find_if(std::begin(kDTypes), std::end(kDTypes),
                       [&](const DTypeRow& row) { return row.dtype == dtype; });
}

[[noreturn]] void bad_file(const std::string& path, const std::string& what,
                           const std::string& found = "", const std::string& expected = "") {
  refuse(ErrorKind::kInput, "bad safetensors file: " + what, path, found, expected,
         "copy or download the file again");
}

/// The kind of a file that is not a safetensors file, by its first bytes.
void refuse_other_formats(const std::string& path, const std::string& head) {
  if (head.starts_with("PK\x03\x04") || head.starts_with("\x80\x02")) {
    refuse(ErrorKind::kInput, "a PyTorch pickle, which can run code when it is loaded, is not read",
           path, {}, "a safetensors file", "convert to safetensors");
  }
  if (head.starts_with("version "))
    bad_file(path, "this is a Git LFS pointer, not the file it points to");
  if (head.starts_with("<!") || head.starts_with("<h") || head.starts_with("<H"))
    bad_file(path, "this is a web page");
}

std::string read_header(const FileHandle& file) {
  const std::string& path = file.path();
  const uint64_t size = file.size();
  if (size < 8) bad_file(path, "too short", std::to_string(size) + " bytes", "at least 8");
  std::string head(8, '\0');
  file.read_at(0, head.data(), 8);
  uint64_t length = 0;
  memcpy(&length, head.data(), 8);
  if (length == 0 || length > kMaxHeader || length > size - 8) {
    refuse_other_formats(path, head);
    bad_file(path, "the header length is impossible", std::to_string(length),
             "1 to " + std::to_string(std::min(kMaxHeader, size - 8)) + " (the file has " +
                 std::to_string(size) + " bytes)");
  }
  std::string header(length, '\0');
  file.read_at(8, header.data(), length);
  if (header.compare(0, 3, "\xef\xbb\xbf") == 0)
    bad_file(path, "a byte order mark before the header");
  return header;
}

void check_name(const std::string& path, const std::string& name) {
  if (name.empty()) bad_file(path, "a tensor without a name");
  if (name.size() > kMaxName)
    bad_file(path, "a tensor name of " + std::to_string(name.size()) + " bytes",
             quote_text(name, 60), "at most 1024 bytes");
  const auto is_control = [](unsigned char byte) { return byte < 0x20 || byte == 0x7f; };
  if (std::any_of(name.begin(), name.end(), is_control))
    bad_file(path, "a control character in a tensor name", quote_text(name));
}

void parse_metadata(const std::string& path, const Json& value,
                    std::map<std::string, std::string>* metadata) {
  if (value.is_null()) return;
  if (!value.is_object())
    bad_file(path, "__metadata__ is not an object", describe_json(value), "an object of strings");
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string())
      bad_file(path, "__metadata__ " + quote_text(key) + " is not a string", describe_json(text));
    (*metadata)[key] = text.get<std::string>();
  }
}

/// One header entry: exactly dtype, shape and data_offsets, each of the right type and consistent
/// with the others.
class EntryParser {
 public:
  EntryParser(const std::string& path, const std::string& name) : path_(path), name_(name) {}

  TensorInfo parse(const Json& entry) const {
    if (!entry.is_object()) refuse_entry("is not an object", describe_json(entry));
    for (const auto& [key, value] : entry.items()) {
      if (key != "dtype" && key != "shape" && key != "data_offsets")
        refuse_entry("has an unknown field", quote_text(key));
    }
    for (const char* key : {"dtype", "shape", "data_offsets"}) {
      if (!entry.contains(key)) refuse_entry("lacks the field " + quote_text(key));
    }
    TensorInfo info;
    info.name = name_;
    info.dtype = dtype_of(entry["dtype"]);
    const std::vector<uint64_t> shape = numbers_of(entry["shape"], "shape"),
                                offsets = numbers_of(entry["data_offsets"], "data_offsets");
    if (shape.size() > kMaxRank)
      refuse_entry("has too many dimensions", std::to_string(shape.size()), "at most 8");
    uint64_t elements = 1;
    bool fits = true;
    for (const uint64_t size : shape) {
      fits = fits && size <= kMaxSize && !__builtin_mul_overflow(elements, size, &elements);
      info.shape.push_back(static_cast<int64_t>(size));
    }
    const auto bits = static_cast<uint64_t>(dtype_bits(info.dtype));
    fits = fits && !__builtin_mul_overflow(elements / 8, bits, &info.bytes) &&
           !__builtin_add_overflow(info.bytes, elements % 8 * bits / 8, &info.bytes);
    if (!fits || info.bytes > kMaxSize)
      refuse_entry("has an impossible shape", entry["shape"].dump());
    if (elements % 8 * bits % 8 != 0)
      refuse_entry("ends within a byte", std::to_string(elements) + " elements");
    if (offsets.size() != 2)
      refuse_entry("has bad data_offsets", std::to_string(offsets.size()) + " numbers", "2");
    if (offsets[1] < offsets[0])
      refuse_entry("ends before it begins", entry["data_offsets"].dump());
    if (offsets[1] - offsets[0] != info.bytes) {
      refuse_entry("has a size that contradicts its shape",
                   std::to_string(offsets[1] - offsets[0]) + " bytes",
                   std::to_string(info.bytes) + " bytes for " + dtype_name(info.dtype) + " " +
                       entry["shape"].dump());
    }
    info.offset = offsets[0];
    return info;
  }

 private:
  static constexpr uint64_t kMaxSize = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());

  [[noreturn]] void refuse_entry(const std::string& what, const std::string& found = "",
                                 const std::string& expected = "") const {
    bad_file(path_, "tensor " + quote_text(name_) + " " + what, found, expected);
  }

  DType dtype_of(const Json& value) const {
    if (value.is_string()) {
      for (const DTypeRow& row : kDTypes) {
        if (value.get_ref<const std::string&>() == row.name) return row.dtype;
      }
    }
    std::vector<std::string> names;
    for (const DTypeRow& row : kDTypes) names.push_back(row.name);
    refuse_entry("has an unknown dtype", describe_json(value), join(names));
  }

  std::vector<uint64_t> numbers_of(const Json& value, const std::string& key) const {
    if (!value.is_array())
      refuse_entry("has a bad " + key, describe_json(value), "an array of whole numbers");
    std::vector<uint64_t> numbers;
    for (const Json& item : value) {
      if (!item.is_number_unsigned())
        refuse_entry("has a bad " + key, describe_json(item), "whole numbers from 0 on");
      numbers.push_back(item.get<uint64_t>());
    }
    return numbers;
  }

  const std::string& path_;
  const std::string& name_;
};

/// The tensors must cover the data from its first byte to its last, without gap or overlap. Then
/// offsets are changed to count from the file's start.
void check_layout(const std::string& path, uint64_t data_begin, uint64_t data_bytes,
                  std::map<std::string, TensorInfo>* tensors) {
  std::vector<TensorInfo*> sorted;
  for (auto& [name, info] : *tensors) sorted.push_back(&info);
  std::sort(sorted.begin(), sorted.end(), [](const TensorInfo* a, const TensorInfo* b) {
    return std::pair(a->offset, a->bytes) < std::pair(b->offset, b->bytes);
  });
  uint64_t reached = 0;
  for (TensorInfo* info : sorted) {
    if (info->offset != reached) {
      bad_file(path,
               std::string(info->offset > reached ? "a hole before" : "an overlap at") +
                   " tensor " + quote_text(info->name),
               "it begins at " + std::to_string(info->offset), std::to_string(reached));
    }
    if (info->bytes > data_bytes - reached) {
      bad_file(path, "the file ends before tensor " + quote_text(info->name) + " does",
               std::to_string(data_bytes) + " bytes of data",
               "at least " + std::to_string(reached) + " + " + std::to_string(info->bytes));
    }
    reached += info->bytes;
    info->offset += data_begin;
  }
  if (reached != data_bytes)
    bad_file(path, "bytes behind the last tensor", std::to_string(data_bytes) + " bytes of data",
             std::to_string(reached));
}

}  // namespace

int64_t dtype_bits(DType dtype) { return row_of(dtype).bits; }

int64_t dtype_size(DType dtype) { return dtype_bits(dtype) / 8; }

const char* dtype_name(DType dtype) { return row_of(dtype).name; }

int64_t TensorInfo::numel() const {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

SafetensorsFile::SafetensorsFile(const std::string& path)
    : path_(path), file_(FileHandle::open_to_read(path)) {
  const uint64_t size = file_.size();
  const std::string header = read_header(file_);
  bool metadata_seen = false;
  parse_json_entries(header, path, {.max_bytes = kMaxHeader, .max_depth = 4},
                     [&](const std::string& name, const Json& entry) {
                       if (name == "__metadata__") {
                         if (std::exchange(metadata_seen, true))
                           bad_file(path, "__metadata__ comes twice");
                         return parse_metadata(path, entry, &metadata_);
                       }
                       check_name(path, name);
                       if (!tensors_.emplace(name, EntryParser(path, name).parse(entry)).second)
                         bad_file(path, "tensor " + quote_text(name) + " comes twice");
                     });
  check_layout(path, 8 + header.size(), size - 8 - header.size(), &tensors_);
}

const TensorInfo& SafetensorsFile::info(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found != tensors_.end()) return found->second;
  refuse(ErrorKind::kInput, "no tensor " + quote_text(name), path_,
         std::to_string(tensors_.size()) + " other tensors", {}, "use the file that belongs there");
}

void SafetensorsFile::read(const TensorInfo& tensor, void* destination) const {
  read_range(tensor, 0, tensor.bytes, destination);
}

void SafetensorsFile::read_range(const TensorInfo& tensor, uint64_t begin, uint64_t bytes,
                                 void* destination) const {
  if (begin > tensor.bytes || bytes > tensor.bytes - begin) {
    throw Error(ErrorKind::kInternal, "read behind the end of tensor " + quote_text(tensor.name));
  }
  file_.read_at(tensor.offset + begin, destination, bytes);
  if (tensor.dtype != DType::kBool) return;
  const auto* values = static_cast<const unsigned char*>(destination);
  const auto* bad =
      std::find_if(values, values + bytes, [](unsigned char value) { return value > 1; });
  if (bad != values + bytes)
    bad_file(path_,
             "tensor " + quote_text(tensor.name) + " has a BOOL value that is neither 0 nor 1",
             std::to_string(*bad));
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<TensorInfo> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : tensors_(std::move(tensors)) {
  std::sort(tensors_.begin(), tensors_.end(), [](const TensorInfo& a, const TensorInfo& b) {
    const DTypeRow *kind_a = &row_of(a.dtype), *kind_b = &row_of(b.dtype);
    return kind_a == kind_b ? a.name < b.name : kind_a > kind_b;
  });
  std::string header = "{";
  const auto text_of = [&](const std::string& text) { return json_text(Json(text)); };
  for (const auto& [key, value] : metadata) {
    header +=
        (header.size() == 1 ? "\"__metadata__\":{" : ",") + text_of(key) + ":" + text_of(value);
  }
  if (!metadata.empty()) header += "}";
  uint64_t end = 0;
  for (TensorInfo& info : tensors_) {
    info.offset = end;
    info.bytes = static_cast<uint64_t>(info.numel() * dtype_bits(info.dtype) / 8);
    end += info.bytes;
    header += (header.size() == 1 ? "" : ",") + text_of(info.name) + ":{\"dtype\":\"" +
              dtype_name(info.dtype) + "\",\"shape\":" + Json(info.shape).dump() +
              ",\"data_offsets\":[" + std::to_string(info.offset) + "," + std::to_string(end) +
              "]}";
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t length = header.size();
  for (TensorInfo& info : tensors_) info.offset += 8 + length;
  total_ = 8 + length + end;
  file_ = FileHandle::create(path, total_);
  header.insert(0, reinterpret_cast<const char*>(&length), 8);
  append(header.data(), header.size());
}

SafetensorsWriter::~SafetensorsWriter() {
  if (!file_.is_open()) return;
  unlink(file_.path().c_str());
}

void SafetensorsWriter::append(const void* data, uint64_t bytes) {
  if (bytes > total_ - written_)
    throw Error(ErrorKind::kInternal, "more bytes than were declared for " + file_.path());
  file_.write(data, bytes);
  written_ += bytes;
}

void SafetensorsWriter::finish() {
  if (written_ != total_)
    throw Error(ErrorKind::kInternal, "fewer bytes than were declared for " + file_.path());
  file_.sync();
  const uint64_t size = file_.size();
  if (size != total_) {
    refuse(ErrorKind::kResource, "the disk did not keep what was written", file_.path(),
           std::to_string(size) + " bytes", std::to_string(total_) + " bytes",
           "check the disk, or write to another one");
  }
  file_.close();
}

}  // namespace lft::io
