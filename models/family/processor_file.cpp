#include "models/family/processor_file.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "kernels/common/error.h"

namespace lft::family {
namespace {

using Json = nlohmann::json;

constexpr char kNoOtherWay[] =
    "set that if it suits the model: lft does not implement another image fit";

}  // namespace

const std::vector<float> kClipMean = {0.48145466f, 0.4578275f, 0.40821073f};
const std::vector<float> kClipStd = {0.26862954f, 0.26130258f, 0.27577711f};

void ProcessorFile::fail(const std::string& what, const std::string& found,
                         const std::string& expected, const std::string& next) const {
  throw Error(ErrorKind::kInput,
              {.what = what, .where = where, .found = found, .expected = expected, .next = next});
}

std::vector<float> ProcessorFile::colour(const char* key, const std::vector<float>& fallback,
                                         bool positive) const {
  if (!json.contains(key) || json[key].is_null()) return fallback;
  std::vector<float> numbers;
  for (const Json& item : json[key]) {
    const float number = item.is_number() ? item.get<float>() : NAN;
    if (!(number >= (positive ? 1e-6f : 0.0f) && number <= 1)) {
      fail(std::string(key) + " is out of range", item.dump(),
           positive ? "numbers above 0, at most 1" : "numbers from 0 to 1", kItsOwnFile);
    }
    numbers.push_back(number);
  }
  if (numbers.size() != 3)
    fail(std::string(key) + " is not a colour", json[key].dump(), "3 numbers", kItsOwnFile);
  return numbers;
}

int64_t ProcessorFile::integer(const char* key, int64_t low, int64_t high, int64_t fallback) const {
  const Json value = json.value(key, Json());
  if (value.is_null()) return fallback;
  const bool fits = value.is_number_integer() && value.get<double>() >= static_cast<double>(low) &&
                    value.get<double>() <= static_cast<double>(high);
  if (!fits) {
    fail(std::string(key) + " is out of range", value.dump(),
         "a whole number from " + std::to_string(low) + " to " + std::to_string(high), kItsOwnFile);
  }
  return value.get<int64_t>();
}

bool ProcessorFile::flag(const char* key, bool fallback) const {
  const Json value = json.value(key, Json());
  if (value.is_null()) return fallback;
  if (!value.is_boolean())
    fail(std::string(key) + " is neither true nor false", value.dump(), "true or false",
         kItsOwnFile);
  return value.get<bool>();
}

void ProcessorFile::expect_true(const std::vector<const char*>& keys) const {
  for (const char* key : keys) {
    if (json.value(key, Json(true)) == Json(false))
      fail(std::string(key) + " is false", "false", "true", kNoOtherWay);
  }
}

void ProcessorFile::expect_resample(int64_t filter, const std::string& name) const {
  const Json resample = json.value("resample", Json(filter));
  if (!resample.is_null() && resample != Json(filter))
    fail("resample is not " + name, resample.dump(), std::to_string(filter), kNoOtherWay);
}

void ProcessorFile::expect_rescale() const {
  const Json factor = json.value("rescale_factor", Json(1.0 / 255));
  if (factor.is_null()) return;
  if (!(factor.is_number() && std::abs(factor.get<double>() * 255 - 1) < 1e-6))
    fail("rescale_factor is not 1/255", factor.dump(), "0.00392156862745098", kNoOtherWay);
}

void expect_native(const ImageRules& rules) {
  if (rules.fit == "native") return;
  throw Error(ErrorKind::kUsage, {.what = "unknown image fit",
                                  .where = "data.image_fit",
                                  .found = "\"" + rules.fit + "\"",
                                  .expected = "native",
                                  .next = "leave data.image_fit out"});
}

void expect_no_least_pixels(const ImageRules& rules) {
  if (rules.min_pixels <= 0) return;
  throw Error(ErrorKind::kUsage,
              {.what = "this family has no smallest number of pixels",
               .where = "data.min_pixels",
               .found = std::to_string(rules.min_pixels),
               .expected = "0: every image is scaled to whole tiles",
               .next = "leave data.min_pixels out; data.max_pixels sets the size"});
}

}  // namespace lft::family
