// Bounded JSON: depth, size, duplicate keys, UTF-8 and trailing text are checked. Throws kInput
// with file and byte or line.
#pragma once
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace lft::io {

using Json = nlohmann::json;
struct JsonLimits {
  uint64_t max_bytes = 64u << 20;
  int max_depth = 16;
  bool long_integers_as_text = false;  // integers beyond 64 bits as their digits, not rounded
};
Json parse_json(std::string_view text, const std::string& where, JsonLimits limits = {});
Json read_json_file(const std::string& path, JsonLimits limits = {});

/// The text must be one object; each of its entries is passed to `take` when it is complete and
/// then dropped, so memory use is constant. A duplicate key of this outermost level is passed
/// twice, and `take` must refuse it; duplicates inside an entry are refused here.
void parse_json_entries(std::string_view text, const std::string& where, JsonLimits limits,
                        const std::function<void(const std::string& key, Json value)>& take);

/// Typed access with complete errors: kInput "config.json: hidden_size: found -1, expected a whole
/// number in [1, 65536]".
int64_t json_int(const Json& object, const std::string& key, int64_t low, int64_t high,
                 const std::string& where);
double json_number(const Json& object, const std::string& key, const std::string& where);
std::string json_string(const Json& object, const std::string& key, const std::string& where);
bool json_bool(const Json& object, const std::string& key, const std::string& where);
const Json& json_array(const Json& object, const std::string& key, const std::string& where);
/// A value for a message: its truncated JSON text; "an object" or "an array of 3" for large ones;
/// invalid UTF-8 is replaced.
std::string describe_json(const Json& value);

/// The text of a JSON or ordered JSON value; invalid UTF-8 is replaced. indent -1: one line.
template <class Value>
std::string json_text(const Value& value, int indent = -1) {
  return value.dump(indent, ' ', false, Value::error_handler_t::replace);
}

}  // namespace lft::io
