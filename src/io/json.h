// Bounded JSON: depth, size, duplicate keys, UTF-8 and trailing text are checked. Throws kInput with file and byte or line.
#pragma once
#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

namespace lft {

using Json = nlohmann::json;
struct JsonLimits {
  uint64_t max_bytes = 64u << 20;
  int max_depth = 16;
};
Json parse_json(std::string_view text, const std::string& where, JsonLimits limits = {});
Json read_json_file(const std::string& path, JsonLimits limits = {});

/// Typed access that says what is wrong where: kInput "config.json: hidden_size: found -1, expected a whole number in [1, 65536]".
int64_t json_int(const Json& object, const std::string& key, int64_t low, int64_t high, const std::string& where);
double json_number(const Json& object, const std::string& key, const std::string& where);
std::string json_string(const Json& object, const std::string& key, const std::string& where);

}  // namespace lft
