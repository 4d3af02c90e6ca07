#include "models/llama/rope_scaling.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

namespace lft::llama {
namespace {

using Json = nlohmann::json;

constexpr double kMostFactor = 1e6;

bool is_zero(const Json* value) { return value != nullptr && value->is_number() && *value == 0; }

/// A number above 0; 0 means absent, as with Python's `or`.
void read_positive(const ConfigFields& rope, const char* key, double* value) {
  if (!is_zero(rope.find(key))) rope.number(key, 0, kMostFactor, value);
}

void require(const ConfigFields& rope, const std::string& type,
             const std::vector<const char*>& names) {
  for (const char* name : names) {
    if (rope.find(name) == nullptr)
      rope.fail(name, "nothing", "a value, as rope type " + type + " needs it");
  }
}

/// An original context length in the text part takes precedence over that of the scaling.
void read_context(const RopeSource& source, RopeScaling& scaling) {
  const char* key = "original_max_position_embeddings";
  scaling.original_max_positions = source.max_positions;
  source.rope.integer(key, 1, kMaxPositions, &scaling.original_max_positions);
  source.text.integer(key, 1, kMaxPositions, &scaling.original_max_positions);
}

/// The factor, or by default the ratio of the context length to the original one.
double read_factor(const RopeSource& source, RopeScaling& scaling) {
  scaling.factor = static_cast<double>(source.max_positions) /
                   static_cast<double>(scaling.original_max_positions);
  source.rope.number("factor", 0, kMostFactor, &scaling.factor);
  return scaling.factor;
}

void parse_llama3(const RopeSource& source, RopeScaling& scaling) {
  const ConfigFields& rope = source.rope;
  require(rope, scaling.type, {"factor", "low_freq_factor", "high_freq_factor"});
  rope.number("factor", 0, kMostFactor, &scaling.factor);
  rope.number("low_freq_factor", 0, kMostFactor, &scaling.low_freq_factor);
  rope.number("high_freq_factor", 0, kMostFactor, &scaling.high_freq_factor);
  read_context(source, scaling);
  if (scaling.high_freq_factor <= scaling.low_freq_factor) {
    rope.fail("high_freq_factor", Json(scaling.high_freq_factor).dump(),
              "more than low_freq_factor");
  }
}

void parse_yarn(const RopeSource& source, RopeScaling& scaling) {
  const ConfigFields& rope = source.rope;
  if (source.theta <= 1) rope.fail("rope_theta", Json(source.theta).dump(), "more than 1");
  read_context(source, scaling);
  const double factor = read_factor(source, scaling);
  const auto mscale = [&](double by) {
    return factor <= 1 ? 1.0 : 0.1 * by * std::log(factor) + 1.0;
  };
  double some = 0, all = 0;
  read_positive(rope, "mscale", &some);
  read_positive(rope, "mscale_all_dim", &all);
  scaling.attention_factor = some > 0 && all > 0 ? mscale(some) / mscale(all) : mscale(1);
  rope.number("attention_factor", 0, kMostFactor, &scaling.attention_factor);
  read_positive(rope, "beta_fast", &scaling.beta_fast);
  read_positive(rope, "beta_slow", &scaling.beta_slow);
  rope.flag("truncate", &scaling.truncate);
}

std::vector<double> read_list(const RopeSource& source, const char* key) {
  const Json& list = *source.rope.find(key);
  const auto fits = [](const Json& one) {
    return one.is_number() && one.get<double>() > 0 && one.get<double>() <= kMostFactor;
  };
  if (!list.is_array() || static_cast<int64_t>(list.size()) != source.head_dim / 2 ||
      !std::ranges::all_of(list, fits)) {
    source.rope.fail(key, list.dump().substr(0, 80),
                     std::to_string(source.head_dim / 2) + " numbers above 0");
  }
  return list.get<std::vector<double>>();
}

void parse_longrope(const RopeSource& source, RopeScaling& scaling) {
  require(source.rope, scaling.type, {"short_factor", "long_factor"});
  scaling.short_factor = read_list(source, "short_factor");
  scaling.long_factor = read_list(source, "long_factor");
  read_context(source, scaling);
  const double factor = read_factor(source, scaling),
               context = static_cast<double>(scaling.original_max_positions);
  if (factor > 1) scaling.attention_factor = std::sqrt(1 + std::log(factor) / std::log(context));
  source.rope.number("attention_factor", 0, kMostFactor, &scaling.attention_factor);
  if (!std::isfinite(scaling.attention_factor))
    source.rope.fail("original_max_position_embeddings",
                     std::to_string(scaling.original_max_positions), "more than 1");
}

/// Below the context bounds of `scaling`: unscaled; above them: divided by the factor.
at::Tensor llama3_frequencies(const RopeScaling& scaling, const at::Tensor& inverse) {
  const auto context = static_cast<double>(scaling.original_max_positions);
  const at::Tensor wavelength = 2 * M_PI / inverse;
  const at::Tensor smooth = (context / wavelength - scaling.low_freq_factor) /
                            (scaling.high_freq_factor - scaling.low_freq_factor);
  const at::Tensor low = wavelength > context / scaling.low_freq_factor,
                   high = wavelength < context / scaling.high_freq_factor;
  const at::Tensor scaled = at::where(low, inverse / scaling.factor, inverse);
  const at::Tensor smoothed = (1 - smooth) * scaled / scaling.factor + smooth * scaled;
  return at::where(low.logical_or(high), scaled, smoothed);
}

at::Tensor yarn_frequencies(const RopeScaling& scaling, double theta, int64_t head_dim,
                            const at::Tensor& powers) {
  const auto dim = static_cast<double>(head_dim),
             context = static_cast<double>(scaling.original_max_positions);
  const auto pair_of = [&](double rotations) {
    return dim * std::log(context / (rotations * 2 * M_PI)) / (2 * std::log(theta));
  };
  double low = pair_of(scaling.beta_fast), high = pair_of(scaling.beta_slow);
  if (scaling.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1);
  if (low == high) high += 0.001;
  const at::Tensor ramp = ((at::arange(head_dim / 2, at::kFloat) - low) / (high - low)).clamp(0, 1);
  const at::Tensor kept = 1 - ramp;
  return 1.0 / (scaling.factor * powers) * (1 - kept) + 1.0 / powers * kept;
}

/// The base grows with the length of the sequence beyond the context, in float32 as in
/// transformers, where the length is a tensor.
at::Tensor dynamic_frequencies(const RopeScaling& scaling, double theta, int64_t head_dim,
                               const at::Tensor& exponent, int64_t length) {
  const auto dim = static_cast<double>(head_dim),
             context = static_cast<double>(scaling.original_max_positions);
  const at::Tensor longer = at::scalar_tensor(static_cast<double>(length), at::kFloat);
  const at::Tensor base =
      theta * at::pow(scaling.factor * longer / context - (scaling.factor - 1), dim / (dim - 2));
  return 1.0 / at::pow(base, exponent);
}

}  // namespace

void parse_rope_scaling(const RopeSource& source, RopeScaling* to) {
  RopeScaling& scaling = *to;
  const ConfigFields& rope = source.rope;
  rope.one_of("rope_type", {"default", "linear", "dynamic", "yarn", "longrope", "llama3"},
              &scaling.type);
  if (scaling.type == "linear" || scaling.type == "dynamic") {
    require(rope, scaling.type, {"factor"});
    rope.number("factor", 0, kMostFactor, &scaling.factor);
    scaling.original_max_positions = source.max_positions;
  }
  if (scaling.type == "dynamic" && source.head_dim <= 2)
    rope.fail("rope_type", scaling.type,
              "another type for heads of " + std::to_string(source.head_dim) + " numbers");
  if (scaling.type == "llama3") parse_llama3(source, scaling);
  if (scaling.type == "yarn") parse_yarn(source, scaling);
  if (scaling.type == "longrope") parse_longrope(source, scaling);
}

at::Tensor scaled_frequencies(const RopeScaling& scaling, double theta, int64_t head_dim,
                              int64_t length) {
  const at::Tensor exponent =
      at::arange(0, head_dim, 2, at::kLong).to(at::kFloat) / static_cast<double>(head_dim);
  const at::Tensor powers = at::pow(at::Scalar(theta), exponent);
  if (scaling.type == "linear") return 1.0 / powers / scaling.factor;
  if (scaling.type == "llama3") return llama3_frequencies(scaling, 1.0 / powers);
  if (scaling.type == "yarn") return yarn_frequencies(scaling, theta, head_dim, powers);
  const bool longer = length > scaling.original_max_positions;
  if (scaling.type == "longrope") {
    return 1.0 /
           (at::tensor(longer ? scaling.long_factor : scaling.short_factor, at::kFloat) * powers);
  }
  if (scaling.type == "dynamic" && longer)
    return dynamic_frequencies(scaling, theta, head_dim, exponent, length);
  return 1.0 / powers;
}

std::string fingerprint_of_scaling(const RopeScaling& scaling) {
  std::ostringstream out;
  out.precision(17);
  out << scaling.type << ' ' << scaling.factor << ' ' << scaling.low_freq_factor << ' '
      << scaling.high_freq_factor << ' ' << scaling.original_max_positions;
  if (scaling.attention_factor != 1) out << " attention " << scaling.attention_factor;
  if (scaling.type == "yarn")
    out << ' ' << scaling.beta_fast << ' ' << scaling.beta_slow << ' ' << scaling.truncate;
  for (const double factor : scaling.short_factor) out << ' ' << factor;
  for (const double factor : scaling.long_factor) out << ' ' << factor;
  return out.str();
}

}  // namespace lft::llama
