#include "src/io/json.h"
#include "tests/fuzz/targets.h"

namespace lft::fuzz {
using namespace lft::io;
namespace {

constexpr JsonLimits kLimits{.max_bytes = 16 << 10, .max_depth = 8};

/// The same text read entry by entry. Null if it is refused or has a duplicate key.
Json by_entries(std::string_view bytes) {
  Json entries = Json::object();
  bool twice = false;
  const bool good = reads(ErrorKind::kInput, [&] {
    parse_json_entries(bytes, "x.json", kLimits, [&](const std::string& key, Json value) {
      twice |= entries.contains(key);
      entries[key] = std::move(value);
    });
  });
  return good && !twice ? entries : Json();
}

void read_fields(const Json& json) {
  reads(ErrorKind::kInput,
        [&] { expect(json_int(json, "n", -5, 5, "x.json") <= 5, "a number within its limits"); });
  reads(ErrorKind::kInput, [&] { json_number(json, "n", "x.json"); });
  reads(ErrorKind::kInput, [&] { json_string(json, "n", "x.json"); });
  reads(ErrorKind::kInput, [&] { json_bool(json, "n", "x.json"); });
  describe_json(json);
}

}  // namespace

bool json(std::string_view bytes) {
  Json whole;
  const bool good = reads(ErrorKind::kInput, [&] { whole = parse_json(bytes, "x.json", kLimits); });
  const Json entries = by_entries(bytes);
  expect(entries == (good && whole.is_object() ? whole : Json()), "entries are those of the whole");
  if (!good) return false;
  expect(bytes.size() <= kLimits.max_bytes, "the limit of bytes");
  expect(parse_json(whole.dump(), "dump.json") == whole, "what was read reads back");
  read_fields(whole);
  return true;
}

}  // namespace lft::fuzz
