// Detects unusual scales. The expected scale comes from the kind, with generous factors, because
// sound models are uneven: the first and last layers differ from the others by up to ten times
// (Llama's first input norm is far smaller), a few channels have values a hundred times larger than
// the rest, and a bias of k has no effect, so that its size is arbitrary.
#include <algorithm>
#include <cmath>

#include "src/base/numeric.h"
#include "src/base/text.h"
#include "src/train/weights/odd_weights.h"

namespace lft::train {
namespace {

const double kBetweenFactor = std::log(8), kEndFactor = std::log(32), kVectorFactor = std::log(64),
             kLoneFactor = std::log(300);
constexpr double kScaleSpreads = 8;
constexpr double kLineFactor = 300, kValueFactor = 3000;
constexpr double kNormMost = 1000, kNormLeast = 1e-4;
constexpr size_t kNearest = 4;

/// One layer's tensor among its kind.
struct KinScale {
  std::string name;
  int64_t layer = 0;
  double log_rms = 0;
};

bool is_bias(const std::string& name) { return name.ends_with(".bias"); }

/// The median row norm, so that a few rows of another scale do not count; for a token table, whose
/// rows may be mostly unused and near 0, the norm that only a tenth exceeds.
double usual_row_norm(const std::string& name, const TensorStats& one) {
  std::vector<double> squares = one.row_squares;
  if (!name.ends_with("embed_tokens.weight") && !name.ends_with("lm_head.weight"))
    return std::sqrt(median(squares));
  const auto upper = squares.begin() + std::ssize(squares) * 9 / 10;
  std::nth_element(squares.begin(), upper, squares.end());
  return std::sqrt(*upper);
}

/// As a root mean square; over the full tensor if that norm is 0.
double usual_rms(const std::string& name, const TensorStats& one) {
  const double row = usual_row_norm(name, one) / std::sqrt(static_cast<double>(one.columns));
  return row > 0 ? row : one.rms;
}

/// The expected value from the kind's trend: the median of the nearest layers.
double trend_at(const std::vector<KinScale>& kin, int64_t layer) {
  std::vector<KinScale> others;
  std::copy_if(kin.begin(), kin.end(), std::back_inserter(others),
               [&](const KinScale& one) { return one.layer != layer; });
  std::stable_sort(others.begin(), others.end(), [&](const KinScale& a, const KinScale& b) {
    return std::abs(a.layer - layer) < std::abs(b.layer - layer);
  });
  std::vector<double> nearest;
  for (size_t i = 0; i < std::min(kNearest, others.size()); ++i)
    nearest.push_back(others[i].log_rms);
  return median(nearest);
}

Suspicion other_scale(const std::string& name, double rms, double others, const std::string& of) {
  const double times = rms / others;
  return {.weight = 1000 * std::abs(std::log(times)),
          .name = name,
          .what = "values of another scale",
          .found = "their root mean square is " + format_number(rms) + ", " +
                   (times > 1 ? format_number(times) + " times"
                              : "1/" + format_number(1 / times) + " of") +
                   " what is usual",
          .neighbours = of + " " + format_number(others),
          .next = kCompare};
}

/// For kinds of three or more layers: beyond a factor from the kind's median and from the trend,
/// and far beyond the kind's own spread.
void against_kind(const std::vector<KinScale>& kin, bool matrix, std::vector<Suspicion>& found) {
  const int64_t last = kin.back().layer;
  for (const KinScale& one : kin) {
    std::vector<double> others;
    for (const KinScale& other : kin) {
      if (other.layer != one.layer) others.push_back(other.log_rms);
    }
    const double usual = median(others), away = one.log_rms - usual;
    const bool end = one.layer < 2 || one.layer == last;
    const double factor = !matrix ? kVectorFactor : end ? kEndFactor : kBetweenFactor;
    if (std::abs(away) < std::max(factor, kScaleSpreads * spread_of(others))) continue;
    if (std::abs(one.log_rms - trend_at(kin, one.layer)) < factor) continue;
    // A small bias is not an error, nor is a large one among tiny ones.
    if (is_bias(one.name) && (away < 0 || std::exp(one.log_rms) < 10)) continue;
    found.push_back(other_scale(one.name, std::exp(one.log_rms), std::exp(usual),
                                "the median of the other layers is"));
  }
}

/// If the kind is too small: matrices are compared with all matrices, norms with 1.
void against_all(const std::string& name, const TensorStats& one, double usual,
                 std::vector<Suspicion>& found) {
  const double rms = usual_rms(name, one);
  if (one.rows > 1 && std::abs(std::log(rms) - usual) > kLoneFactor)
    found.push_back(other_scale(name, rms, std::exp(usual), "the median of all matrices is"));
  if (one.rows == 1 && name.find("norm") != std::string::npos && name.ends_with(".weight") &&
      (one.rms > kNormMost || one.rms < kNormLeast))
    found.push_back(other_scale(name, one.rms, 1, "a norm begins at"));
}

/// Rows, columns and single values. Tensors with another scale as a whole are not reported here,
/// since all of their lines differ.
void odd_lines(const std::string& name, const TensorStats& one, std::vector<Suspicion>& found) {
  const auto add = [&](const std::string& what, double size, double usual) {
    found.push_back({.weight = 500 * std::log(size / usual),
                     .name = name,
                     .what = what,
                     .found = format_number(size),
                     .neighbours = "usual is " + format_number(usual),
                     .next = kCompare});
  };
  const auto largest_of = [](const std::vector<double>& squares) {
    return std::max_element(squares.begin(), squares.end()) - squares.begin();
  };
  const auto row = largest_of(one.row_squares), column = largest_of(one.column_squares);
  const double row_norm = std::sqrt(one.row_squares[static_cast<size_t>(row)]);
  const double column_norm = std::sqrt(one.column_squares[static_cast<size_t>(column)]);
  const double usual_row = usual_row_norm(name, one);
  const double usual_column = std::sqrt(median(one.column_squares));
  const double usual = usual_row / std::sqrt(static_cast<double>(one.columns));
  // In a sample the row's number is not the tensor's.
  const std::string where = one.whole() ? " in row " + std::to_string(row) : "";
  if (usual > 0 && one.largest() > std::max(kValueFactor * usual, 0.7 * row_norm)) {
    add("a single value of another scale" + where, one.largest(), usual);
  } else if (usual_row > 0 && row_norm > kLineFactor * usual_row) {
    add("a row of another scale" + where + ", its norm", row_norm, usual_row);
  } else if (usual_column > 0 && column_norm > kLineFactor * usual_column) {
    add("a column of another scale, number " + std::to_string(column) + ", its norm", column_norm,
        usual_column);
  }
}

}  // namespace

std::vector<Suspicion> odd_scales(const StatsByName& stats) {
  std::map<std::string, std::vector<KinScale>> kinds;
  std::vector<double> matrices;
  for (const auto& [name, one] : stats) {
    const double rms = usual_rms(name, one);
    if (rms == 0 || name.ends_with("k_proj.bias")) continue;
    const TensorKind kind = tensor_kind(name);
    kinds[kind.kind].push_back({name, kind.layer, std::log(rms)});
    if (one.rows > 1) matrices.push_back(std::log(rms));
  }
  const double usual = median(matrices);
  std::vector<Suspicion> found;
  for (auto& [kind, kin] : kinds) {
    std::sort(kin.begin(), kin.end(),
              [](const KinScale& a, const KinScale& b) { return a.layer < b.layer; });
    if (kin.size() >= 3) {
      against_kind(kin, stats.at(kin.front().name).rows > 1, found);
    } else {
      for (const KinScale& one : kin) against_all(one.name, stats.at(one.name), usual, found);
    }
  }
  for (const auto& [name, one] : stats) {
    if (one.rows > 1 && one.rms > 0) odd_lines(name, one, found);
  }
  return found;
}

}  // namespace lft::train
