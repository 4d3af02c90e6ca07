#include "src/checkpoint/saved_state.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "kernels/common/error.h"

namespace lft::checkpoint {
namespace {

constexpr int64_t kMostCount = int64_t{1} << 53;  // integers up to here are exact in a double
constexpr size_t kBitsDigits = 16;                // of a float64 in hexadecimal

/// An object of the file. Missing fields are not errors.
class StateFields {
 public:
  StateFields(const io::Json& object, std::string prefix, const std::string& file)
      : object_(object), prefix_(std::move(prefix)), file_(file) {
    if (!object.is_object()) refuse_value(object, "an object");
  }

  void whole(const std::string& key, int64_t low, int64_t high) const {
    check(key, whole_text(low, high), [&](const io::Json& value) {
      return is_whole(value) && value.get<int64_t>() >= low && value.get<int64_t>() <= high;
    });
  }
  void finite(const std::string& key, double above, double high) const {
    check(key, "a number above " + io::Json(above).dump() + " and at most " + io::Json(high).dump(),
          [&](const io::Json& value) {
            return value.is_number() && value.get<double>() > above && value.get<double>() <= high;
          });
  }
  void flag(const std::string& key) const {
    check(key, "true or false", [](const io::Json& value) { return value.is_boolean(); });
  }
  void text(const std::string& key) const {
    check(key, "a string", [](const io::Json& value) { return value.is_string(); });
  }
  void one_of(const std::string& key, const std::vector<std::string>& names) const {
    check(key, "one of fp32, bf16 and fp16", [&](const io::Json& value) {
      return std::ranges::any_of(names, [&](const std::string& name) { return value == name; });
    });
  }
  /// The bits of a float64.
  void bits(const std::string& key) const { check(key, "16 hexadecimal digits", is_bits); }
  void texts(const std::string& key) const {
    check(key, "a list of strings", [](const io::Json& value) {
      return value.is_array() &&
             std::ranges::all_of(value, [](const io::Json& one) { return one.is_string(); });
    });
  }
  void numbers(const std::string& key) const { check(key, "a list of numbers", are_numbers); }
  /// [name, bits of a number] each.
  void figures(const std::string& key) const {
    check(key, "a list of names and 16 hexadecimal digits each", [](const io::Json& value) {
      return value.is_array() && std::ranges::all_of(value, [](const io::Json& one) {
               return one.is_array() && one.size() == 2 && one[0].is_string() && is_bits(one[1]);
             });
    });
  }
  /// Calls body(fields of the object) if it exists.
  template <typename Body>
  void object(const std::string& key, Body body) const {
    const auto found = object_.find(key);
    if (found != object_.end()) body(StateFields(*found, prefix_ + key + ".", file_));
  }
  /// Calls body(fields, key) for each of its keys.
  template <typename Body>
  void each(Body body) const {
    for (const auto& item : object_.items()) body(*this, item.key());
  }

 private:
  static bool is_whole(const io::Json& value) {
    return value.is_number_unsigned() ? value.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX)
                                      : value.is_number_integer();
  }
  static bool is_bits(const io::Json& value) {
    return value.is_string() && value.get_ref<const std::string&>().size() == kBitsDigits &&
           std::ranges::all_of(value.get_ref<const std::string&>(),
                               [](unsigned char c) { return std::isxdigit(c) != 0; });
  }
  static bool are_numbers(const io::Json& value) {
    return value.is_array() &&
           std::ranges::all_of(value, [](const io::Json& one) { return one.is_number(); });
  }
  static std::string whole_text(int64_t low, int64_t high) {
    return "a whole number in [" + std::to_string(low) + ", " + std::to_string(high) + "]";
  }
  template <typename Fits>
  void check(const std::string& key, const std::string& expected, Fits fits) const {
    const auto found = object_.find(key);
    if (found == object_.end() || fits(*found)) return;
    StateFields::refuse_value(*found, expected, key);
  }
  [[noreturn]] void refuse_value(const io::Json& value, const std::string& expected,
                                 const std::string& key = "") const {
    const std::string field = key.empty() && prefix_.ends_with(".")
                                  ? prefix_.substr(0, prefix_.size() - 1)
                                  : prefix_ + key;
    refuse(ErrorKind::kCheckpoint, "a field of the checkpoint's state cannot be used",
           file_ + ": " + field, io::describe_json(value), expected,
           "resume from another step, or restore this one from a copy");
  }

  const io::Json& object_;
  std::string prefix_;
  const std::string& file_;
};

void check_trend(const StateFields& trend) {
  trend.numbers("first");
  trend.numbers("recent");
}

void check_norms(const StateFields& norms) {
  for (const char* key : {"loss", "norm", "ratio"}) norms.object(key, check_trend);
  norms.object("modules", [](const StateFields& modules) {
    modules.each(
        [](const StateFields& all, const std::string& key) { all.object(key, check_trend); });
  });
  norms.object("activations", [](const StateFields& activations) {
    activations.each([](const StateFields& all, const std::string& key) { all.numbers(key); });
  });
  norms.numbers("lowest");
  norms.whole("below_tenth", 0, kMostCount);
  norms.texts("warned");
}

}  // namespace

void check_saved_state(const io::Json& state, int64_t step, const std::string& file) {
  if (state.is_null()) return;  // for a checkpoint without state
  const StateFields fields(state, "", file);
  fields.whole("step", step, step);
  for (const char* key : {"scheduled", "skips_in_row", "recompute", "tokens", "metrics_bytes"})
    fields.whole(key, 0, kMostCount);
  fields.whole("split", 1, kMostCount);
  fields.flag("recovered");
  fields.flag("adapters_learn");
  fields.finite("lr_factor", 0, 1);
  fields.one_of("precision", {"fp32", "bf16", "fp16"});
  fields.text("run_hash");
  fields.texts("skipped_samples");
  fields.bits("last_loss_bits");
  fields.bits("probe_loss_bits");
  fields.object("adam_steps", [](const StateFields& counts) {
    counts.each(
        [](const StateFields& all, const std::string& name) { all.whole(name, 0, kMostCount); });
  });
  fields.object("best_eval", [](const StateFields& best) {
    best.bits("cost_bits");
    best.bits("loss_bits");
    for (const char* key : {"step", "last_step", "since"}) best.whole(key, -1, kMostCount);
  });
  fields.object("last_eval", [](const StateFields& last) {
    last.whole("step", -1, kMostCount);
    last.flag("due");
    last.flag("scheduled");
    last.bits("loss_bits");
    last.figures("figures");
  });
  fields.object("norm_watch", check_norms);
}

}  // namespace lft::checkpoint
