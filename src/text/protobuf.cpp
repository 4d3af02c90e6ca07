#include "src/text/protobuf.h"

#include "kernels/common/error.h"

namespace lft::text {
namespace {

enum Wire : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

[[noreturn]] void broken() {
  throw Error(ErrorKind::kInternal, "a serialised message is cut or of another kind");
}

}  // namespace

uint64_t ProtobufFields::varint() {
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    const auto byte = static_cast<unsigned char>(take(1).front());
    value |= static_cast<uint64_t>(byte & 0x7FU) << shift;
    if (byte < 0x80) return value;
  }
  broken();
}

std::string_view ProtobufFields::take(uint64_t bytes) {
  if (bytes > rest_.size()) broken();
  const std::string_view taken = rest_.substr(0, bytes);
  rest_.remove_prefix(bytes);
  return taken;
}

bool ProtobufFields::next() {
  if (rest_.empty()) return false;
  const uint64_t key = varint();
  field_ = static_cast<uint32_t>(key >> 3);
  number_ = 0;
  bytes_ = {};
  switch (key & 7) {
    case kVarint:
      number_ = varint();
      break;
    case kBytes:
      bytes_ = take(varint());
      break;
    case kFixed32:
      bytes_ = take(4);
      break;
    case kFixed64:
      bytes_ = take(8);
      break;
    default:
      broken();
  }
  return true;
}

}  // namespace lft::text
