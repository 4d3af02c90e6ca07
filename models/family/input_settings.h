// The settings of a recipe that determine the tokens and pixels of a row, in addition to the
// model's own files. Adapters and models record the settings of their training; generate, eval,
// score and serve use the recorded ones.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>

#include "models/family/image_processor.h"

namespace lft::family {

/// An empty string or a number below 0 means: not set. A new setting needs a member here and a line
/// in for_each_setting().
struct InputSettings {
  std::string template_name = {}, image_fit = {};      // auto, a named form or a file of Jinja;
                                                       // a name that the family knows
  std::string special_tokens = {};                     // error, text or special
  std::string alpha = {};                              // drop or white
  int64_t min_pixels = kUnset, max_pixels = kUnset;    // 0: as in the processor file
  std::string template_args = {}, template_date = {};  // a JSON object; "2024-07-26", the date for
                                                       // strftime_now
  static constexpr int64_t kUnset = -1;
};

/// Calls visit(key, member) for each setting, by its key in a recipe's data section.
template <class Visit>
void for_each_setting(Visit&& visit) {
  visit("template", &InputSettings::template_name);
  visit("template_args", &InputSettings::template_args);
  visit("template_date", &InputSettings::template_date);
  visit("image_fit", &InputSettings::image_fit);
  visit("special_tokens_in_text", &InputSettings::special_tokens);
  visit("alpha", &InputSettings::alpha);
  visit("min_pixels", &InputSettings::min_pixels);
  visit("max_pixels", &InputSettings::max_pixels);
}

inline bool is_set(const std::string& value) { return !value.empty(); }
inline bool is_set(int64_t value) { return value >= 0; }

inline ImageRules image_rules(const InputSettings& settings) {
  return {.fit = settings.image_fit,
          .min_pixels = std::max<int64_t>(settings.min_pixels, 0),
          .max_pixels = std::max<int64_t>(settings.max_pixels, 0)};
}

}  // namespace lft::family
