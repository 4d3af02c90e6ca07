// Typed access to a config.json. Every getter checks its value and names the field in its errors.
// Independent of the model families.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace lft {

/// Upper bounds of config values, far above those of any published model.
constexpr int64_t kMaxHidden = 1 << 16, kMaxIntermediate = 1 << 20, kMaxLayers = 1024;
constexpr int64_t kMaxHeads = 4096, kMaxHeadDim = 1024, kMaxVocab = 1 << 22;
constexpr int64_t kMaxPositions = 1 << 24, kMaxSide = 1 << 14, kMaxExperts = 1 << 14;

/// The activations that a config may name.
const std::vector<std::string>& known_activations();

/// A JSON object of the file, with its path in the file. A getter leaves *value unchanged if the
/// key is absent or null, and throws kInput naming file and field for an invalid value. The object
/// must outlive this one.
class ConfigFields {
 public:
  using Json = nlohmann::json;
  ConfigFields(const Json& object, std::string prefix, const std::string& file);

  /// The value, or nullptr if the key is absent or null.
  const Json* find(const char* key) const;
  /// Whether the key is present, also if it is null.
  bool has(const char* key) const;
  void integer(const char* key, int64_t low, int64_t high, int64_t* value) const;
  int64_t checked(const char* key, const Json& found, int64_t low, int64_t high) const;
  /// A finite number in (above, high].
  void number(const char* key, double above, double high, double* value) const;
  void flag(const char* key, bool* value) const;
  void text(const char* key, std::string* value) const;
  void one_of(const char* key, const std::vector<std::string>& allowed, std::string* value) const;
  /// A side length: a whole number, or two equal ones.
  void square(const char* key, int64_t low, int64_t high, int64_t* value) const;
  ConfigFields child(const char* key) const;
  [[noreturn]] void fail(const std::string& key, const std::string& found,
                         const std::string& expected) const;

 private:
  const Json& object_;
  std::string prefix_;
  const std::string& file_;
};

}  // namespace lft
