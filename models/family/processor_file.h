// A model's own image processor file (preprocessor_config.json, or the part of
// processor_config.json), as a family's image processor is made of it.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace lft::family {

/// `json` is an object, empty where the model has no such file. All functions throw kInput for what
/// they do not take, naming the file.
struct ProcessorFile {
  const nlohmann::json& json;
  std::string where, folder;  // the file, and the model's folder

  /// Three numbers from 0 (above 0 where `positive`) to 1; `fallback` where the key is absent.
  std::vector<float> colour(const char* key, const std::vector<float>& fallback,
                            bool positive) const;
  /// A whole number in [low, high]; `fallback` where the key is absent.
  int64_t integer(const char* key, int64_t low, int64_t high, int64_t fallback) const;
  bool flag(const char* key, bool fallback) const;
  /// Steps that are always done; a file that asks for others is refused.
  void expect_true(const std::vector<const char*>& keys) const;
  /// PIL's number of the filter that is always used, and its name.
  void expect_resample(int64_t filter, const std::string& name) const;
  /// Pixels become numbers from 0 to 1.
  void expect_rescale() const;
  [[noreturn]] void fail(const std::string& what, const std::string& found,
                         const std::string& expected, const std::string& next) const;
};

/// What CLIP's processor normalises with.
extern const std::vector<float> kClipMean, kClipStd;

constexpr char kItsOwnFile[] = "take the file that came with the model";

}  // namespace lft::family
