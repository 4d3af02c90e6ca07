// Typed access to a config.json: every getter checks its value and names the field it refuses. It
// knows no family.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace lft {

/// Bounds of what a config may ask for, far above any model there is.
constexpr int64_t kMaxHidden = 1 << 16, kMaxIntermediate = 1 << 20, kMaxLayers = 1024;
constexpr int64_t kMaxHeads = 4096, kMaxHeadDim = 1024, kMaxVocab = 1 << 22;
constexpr int64_t kMaxPositions = 1 << 24, kMaxSide = 1 << 14;

/// Names of activations that a config may give.
const std::vector<std::string>& known_activations();

/// One JSON object of the file with the path that leads to it. A getter leaves *value as it is
/// where the key is absent or null, and throws kInput naming file and field for a value it cannot
/// take. The object must outlive it.
class ConfigFields {
 public:
  using Json = nlohmann::json;
  ConfigFields(const Json& object, std::string prefix, const std::string& file);

  /// The value, or nullptr where the key is absent or null.
  const Json* find(const char* key) const;
  /// Whether the key is there, null or not.
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
