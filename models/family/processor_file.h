// A model's image processor file: preprocessor_config.json, or that part of processor_config.json.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "models/family/image_processor.h"

namespace lft::family {

/// `json` is an object, empty if the model has no such file. All functions throw kInput naming the
/// file for values that are not supported.
struct ProcessorFile {
  const nlohmann::json& json;
  std::string where, folder;  // the file, and the model's folder

  /// Three numbers from 0 (above 0 if `positive`) to 1; `fallback` if the key is absent.
  std::vector<float> colour(const char* key, const std::vector<float>& fallback,
                            bool positive) const;
  /// An integer in [low, high]; `fallback` if the key is absent.
  int64_t integer(const char* key, int64_t low, int64_t high, int64_t fallback) const;
  bool flag(const char* key, bool fallback) const;
  /// Steps that lft always applies; a file that disables one is rejected.
  void expect_true(const std::vector<const char*>& keys) const;
  /// PIL's number and name of the resampling filter, which is fixed.
  void expect_resample(int64_t filter, const std::string& name) const;
  /// Pixels are rescaled to [0, 1].
  void expect_rescale() const;
  [[noreturn]] void fail(const std::string& what, const std::string& found,
                         const std::string& expected, const std::string& next) const;
};

/// Both throw kUsage: for another image_fit than native, and for data.min_pixels.
void expect_native(const ImageRules& rules);
void expect_no_least_pixels(const ImageRules& rules);

/// The mean and standard deviation of CLIP's processor.
extern const std::vector<float> kClipMean, kClipStd;

constexpr char kItsOwnFile[] = "take the file that came with the model";

}  // namespace lft::family
