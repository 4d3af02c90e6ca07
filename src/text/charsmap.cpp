#include "src/text/charsmap.h"

#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/common/error.h"
#include "src/text/protobuf.h"

namespace lft::text {
namespace {

/// Fields of ModelProto and of NormalizerSpec (sentencepiece_model.proto).
enum ModelField : uint32_t { kNormalizer = 3, kDenormalizer = 5 };
enum SpecField : uint32_t { kCharsmap = 2 };

constexpr uint32_t kBlock = 256;  // units among which the next byte of a key selects

/// A unit of a Darts-clone double array (darts.h of that library).
struct Unit {
  uint32_t bits;
  uint32_t offset() const { return (bits >> 10) << ((bits & (1U << 9)) >> 6); }
  uint32_t label() const { return bits & ((1U << 31) | 0xFFU); }
  bool has_leaf() const { return ((bits >> 8) & 1U) == 1; }
  uint32_t value() const { return bits & ((1U << 31) - 1); }
};

class Trie {
 public:
  Trie(std::string_view bytes, size_t texts) : units_(bytes.size() / sizeof(Unit)), texts_(texts) {
    std::memcpy(units_.data(), bytes.data(), units_.size() * sizeof(Unit));
  }

  /// Visits all keys; returns the first error.
  std::string fault() const {
    std::vector<bool> seen(units_.size(), false);
    std::vector<uint32_t> bases = {units_.empty() ? 0 : units_[0].offset()};
    while (!bases.empty()) {
      const uint32_t base = bases.back();
      bases.pop_back();
      if ((base | (kBlock - 1)) >= units_.size()) return "a unit beyond the end of the trie";
      for (uint32_t byte = 0; byte < kBlock; ++byte) {
        const uint32_t at = base ^ byte;
        if (units_[at].label() != byte || seen[at]) continue;
        seen[at] = true;
        const uint32_t next = at ^ units_[at].offset();
        if (units_[at].has_leaf() && next < units_.size() && units_[next].value() >= texts_)
          return "a text beyond the end of the texts";
        bases.push_back(next);
      }
    }
    return {};
  }

 private:
  std::vector<Unit> units_;
  size_t texts_;  // total bytes of the replacements, to which values are offsets
};

/// Checks a map: the size of the trie, the trie, and the replacements, each NUL-terminated.
std::string fault_of(std::string_view charsmap) {
  uint32_t size = 0;
  if (charsmap.empty()) return {};
  if (charsmap.size() <= sizeof size) return "cut after its size";
  std::memcpy(&size, charsmap.data(), sizeof size);
  charsmap.remove_prefix(sizeof size);
  if (size >= charsmap.size() || size % sizeof(Unit) != 0 || size == 0)
    return "a trie of " + std::to_string(size) + " bytes in " + std::to_string(charsmap.size());
  const std::string_view texts = charsmap.substr(size);
  if (texts.back() != '\0') return "a text without an end";
  return Trie(charsmap.substr(0, size), texts.size()).fault();
}

}  // namespace

std::string charsmap_fault(std::string_view model) {
  ProtobufFields fields(model);
  while (fields.next()) {
    if (fields.field() != kNormalizer && fields.field() != kDenormalizer) continue;
    ProtobufFields spec(fields.bytes());
    while (spec.next()) {
      if (spec.field() != kCharsmap) continue;
      if (std::string fault = fault_of(spec.bytes()); !fault.empty()) return fault;
    }
  }
  return {};
}

}  // namespace lft::text
