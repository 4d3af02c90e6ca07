#include "src/io/json.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>
#include <vector>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/io/files.h"

namespace lft::io {
namespace {

using Take = std::function<void(const std::string& key, Json value)>;

[[noreturn]] void throw_at(std::string_view text, const std::string& where, size_t byte,
                           const std::string& what, const std::string& found,
                           const std::string& expected = {}) {
  byte = std::min(byte, text.size());
  const auto lines =
      std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(byte), '\n');
  refuse(ErrorKind::kInput, what,
         where + " (line " + std::to_string(lines + 1) + ", byte " + std::to_string(byte) + ")",
         found, expected);
}

/// Iterates over the text and exposes the parser's position.
class Cursor {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;
  Cursor(const char* at, const char** reached) : at_(at), reached_(reached) {}
  reference operator*() const { return *at_; }
  Cursor& operator++() {
    *reached_ = ++at_;
    return *this;
  }
  Cursor operator++(int) {
    Cursor before = *this;
    ++*this;
    return before;
  }
  bool operator==(const Cursor& other) const { return at_ == other.at_; }
  bool operator!=(const Cursor& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** reached_;
};

/// Builds the document, or passes on its entries one by one. Violations of limits and rules are
/// refused where they occur.
class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(std::string_view text, const std::string& where, JsonLimits limits, const Take* take)
      : text_(text), where_(where), limits_(limits), take_(take), reached_(text.data()) {}
  const char** reached() { return &reached_; }
  Json result() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t& text) override {
    const bool is_integer = text.find_first_of(".eE") == string_t::npos;
    return is_integer && limits_.long_integers_as_text ? add(text) : add(value);
  }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return shut(); }
  bool end_array() override { return shut(); }

  bool key(string_t& name) override {
    if (open_.back()->contains(name)) fail("a key comes twice", quote_text(name));
    keys_.back() = std::move(name);
    return true;
  }
  bool parse_error(std::size_t byte, const std::string& last,
                   const nlohmann::detail::exception& error) override {
    const std::string message = error.what();
    const size_t detail = message.find(" - ");
    std::string reason = detail == std::string::npos ? message.substr(message.find(']') + 1)
                                                     : message.substr(detail + 3);
    reason = reason.substr(0, reason.find("; last read"));
    throw_at(text_, where_, byte, "invalid JSON", reason + " near " + quote_text(last, 40));
  }

 private:
  [[noreturn]] void fail(const std::string& what, const std::string& found,
                         const std::string& expected = {}) {
    throw_at(text_, where_, static_cast<size_t>(reached_ - text_.data()), what, found, expected);
  }

  Json* place(Json value) {
    if (open_.empty()) {
      if (take_ != nullptr && !value.is_object()) {
        fail("the JSON is not an object", describe_json(value), "{...}");
      }
      root_ = std::move(value);
      return &root_;
    }
    if (open_.back()->is_array()) {
      open_.back()->push_back(std::move(value));
      return &open_.back()->back();
    }
    Json& slot = (*open_.back())[keys_.back()];
    slot = std::move(value);
    return &slot;
  }

  bool add(Json value) {
    place(std::move(value));
    hand_over();
    return true;
  }

  bool open(Json value) {
    if (static_cast<int>(open_.size()) >= limits_.max_depth) {
      fail("JSON nested too deeply", {},
           "at most " + std::to_string(limits_.max_depth) + " levels");
    }
    open_.push_back(place(std::move(value)));
    keys_.emplace_back();
    return true;
  }

  bool shut() {
    open_.pop_back();
    keys_.pop_back();
    hand_over();
    return true;
  }

  /// After a complete value: passes it on if it is an entry of the outermost object.
  void hand_over() {
    if (take_ == nullptr || open_.size() != 1) return;
    Json value = std::move(root_[keys_.back()]);
    root_.clear();
    (*take_)(keys_.back(), std::move(value));
  }

  std::string_view text_;
  const std::string& where_;
  JsonLimits limits_;
  const Take* take_;
  const char* reached_;
  Json root_;
  std::vector<Json*>
      open_;  // containers not yet closed; a container is never moved while it is open
  std::vector<std::string> keys_;  // the current key of each
};

/// The advice for errors of a whole JSON file. For a text within a file, for example a row, its
/// reader has better advice.
template <class Body>
auto as_file(Body body) {
  try {
    return body();
  } catch (const Error& error) {
    throw advised(error, "fix the file at this place, or download it again");
  }
}

Json parse(std::string_view text, const std::string& where, JsonLimits limits, const Take* take) {
  if (text.size() > limits.max_bytes) {
    refuse(ErrorKind::kInput, "JSON too large", where, std::to_string(text.size()) + " bytes",
           "at most " + std::to_string(limits.max_bytes) + " bytes");
  }
  // The parser treats a NUL byte as the end of the text.
  const size_t nul = text.find('\0');
  if (nul != std::string_view::npos) throw_at(text, where, nul, "invalid JSON", "a NUL byte");
  Builder builder(text, where, limits, take);
  Json::sax_parse(Cursor(text.data(), builder.reached()),
                  Cursor(text.data() + text.size(), builder.reached()), &builder);
  return builder.result();
}

const Json& member(const Json& object, const std::string& key, const std::string& where,
                   const std::string& expected) {
  if (!object.is_object()) {
    refuse(ErrorKind::kInput, "not a JSON object", where, describe_json(object),
           "an object with " + quote_text(key));
  }
  const auto found = object.find(key);
  if (found == object.end()) {
    refuse(ErrorKind::kInput, "missing field " + quote_text(key), where, {}, expected);
  }
  return *found;
}

[[noreturn]] void throw_field(const Json& value, const std::string& key, const std::string& where,
                              const std::string& expected) {
  refuse(ErrorKind::kInput, "bad field " + quote_text(key), where, describe_json(value), expected);
}

}  // namespace

Json parse_json(std::string_view text, const std::string& where, JsonLimits limits) {
  return parse(text, where, limits, nullptr);
}

Json read_json_file(const std::string& path, JsonLimits limits) {
  const std::string text = read_file(path, limits.max_bytes);
  return as_file([&] { return parse_json(text, path, limits); });
}

void parse_json_entries(std::string_view text, const std::string& where, JsonLimits limits,
                        const Take& take) {
  as_file([&] { return parse(text, where, limits, &take); });
}

int64_t json_int(const Json& object, const std::string& key, int64_t low, int64_t high,
                 const std::string& where) {
  const std::string expected =
      "a whole number in [" + std::to_string(low) + ", " + std::to_string(high) + "]";
  const Json& value = member(object, key, where, expected);
  const bool fits =
      value.is_number_integer() &&
      (!value.is_number_unsigned() || value.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX));
  if (!fits || value.get<int64_t>() < low || value.get<int64_t>() > high)
    throw_field(value, key, where, expected);
  return value.get<int64_t>();
}

double json_number(const Json& object, const std::string& key, const std::string& where) {
  const Json& value = member(object, key, where, "a number");
  if (!value.is_number() || !std::isfinite(value.get<double>()))
    throw_field(value, key, where, "a number");
  return value.get<double>();
}

std::string json_string(const Json& object, const std::string& key, const std::string& where) {
  const Json& value = member(object, key, where, "a string");
  if (!value.is_string()) throw_field(value, key, where, "a string");
  return value.get<std::string>();
}

bool json_bool(const Json& object, const std::string& key, const std::string& where) {
  const Json& value = member(object, key, where, "true or false");
  if (!value.is_boolean()) throw_field(value, key, where, "true or false");
  return value.get<bool>();
}

const Json& json_array(const Json& object, const std::string& key, const std::string& where) {
  const Json& value = member(object, key, where, "a list");
  if (!value.is_array()) throw_field(value, key, where, "a list");
  return value;
}

std::string describe_json(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array of " + std::to_string(value.size());
  if (value.is_string()) return quote_text(value.get_ref<const std::string&>(), 100);
  return value.dump();
}

}  // namespace lft::io
