// The output of v in channel j of a head is read by column j of o; gradients change row j
// of v and column j of o together, so that in a trained layer channels with large rows have
// large columns. The logarithms of the norms correlate by 0.55 to 0.93 in the quickstart
// base, and by 0 with the other side of the same matrix, which is indexed by the residual
// stream. The same applies to rows of q and k, of gate and up, and to up's rows and down's
// columns. Random initialisation shows no correlation: then nothing is reported, because a
// pair is odd only if the other layers match, or the transposed matrix does. Matrices of
// different layers correlate only by chance, in every head. A correlation below 0, or one
// head that matches, is a property of the layer: in layer 24 of SmolLM2-135M two heads of v
// and o correlate by 0.7 and 0.8, the third by -0.8, all by -0.6.
#include "src/train/weights/base_fit.h"

#include <algorithm>
#include <cmath>

#include "src/base/numeric.h"
#include "src/base/text.h"

namespace lft::train {
namespace {

constexpr double kFits = 0.5;    // minimum for the other layers
constexpr double kNoFit = 0.3;   // maximum for the odd pair
constexpr double kNoChance = 4;  // deviations of a correlation above chance
constexpr double kTransposed = 0.4, kBesideFitting = 0.25;
constexpr double kChances = 8;  // deviations of a correlation of independent channels
constexpr double kSpreads = 2;  // over the other layers, of which another may be odd, too
constexpr size_t kLeastChannels = 16;

using Profile = std::vector<double>;

Profile logs(const Profile& squares) {
  const double least = 1e-12 * *std::max_element(squares.begin(), squares.end());
  Profile profile;
  for (const double square : squares) profile.push_back(std::log(std::max(square, least)));
  return profile;
}

/// Sums the heads that share a head of k and v, channel by channel.
Profile of_groups(const Profile& squares, int64_t heads, int64_t groups) {
  const auto size = static_cast<int64_t>(squares.size()) / heads, each = heads / groups;
  if (each <= 1 || heads * size != std::ssize(squares)) return squares;
  Profile sums(static_cast<size_t>(groups * size));
  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t i = 0; i < size; ++i)
      sums[static_cast<size_t>(head / each * size + i)] +=
          squares[static_cast<size_t>(head * size + i)];
  }
  return sums;
}

/// The side of a matrix that is matched with another one.
struct Side {
  std::string module;  // below a layer, or the full name without layers
  bool rows = true;
  bool of_heads = false;  // indexed by the heads of q
};
struct Meeting {
  Side a, b;
};

std::vector<Meeting> meetings(const TowerNames& tower) {
  std::vector<Meeting> all;
  if (!tower.q.empty()) {
    all = {{{tower.v, true}, {tower.o, false, true}}};
    if (!tower.gates) all.push_back({{tower.k, true}, {tower.q, true, true}});
  }
  for (const std::string& in : tower.mlp_in) all.push_back({{in, true}, {tower.mlp_out, false}});
  return all;
}

/// The match of two matrices, as stored and with either transposed.
struct Fit {
  std::string name_a, name_b;
  double as_is = 0, a_transposed = 0, b_transposed = 0;
  double best_head = 0;  // as stored, of the heads of k and v
  size_t channels = 0, head_channels = 0;
  double turned() const { return std::max(a_transposed, b_transposed); }
};

Profile side_profile(const TowerNames& tower, const TensorStats& one, const Side& side,
                     bool transposed) {
  const Profile& squares = side.rows != transposed ? one.row_squares : one.column_squares;
  return logs(side.of_heads ? of_groups(squares, tower.heads, tower.kv_heads) : squares);
}

bool is_usable(const TensorStats& one) { return one.rms > 0 && one.non_finite == 0; }

double best_head(const Profile& a, const Profile& b, size_t heads) {
  const auto channels = static_cast<int64_t>(a.size() / heads);
  double best = -1;
  for (size_t head = 0; head < heads; ++head) {
    const auto begin = static_cast<int64_t>(head) * channels;
    best = std::max(best, correlation({a.begin() + begin, a.begin() + begin + channels},
                                      {b.begin() + begin, b.begin() + begin + channels}));
  }
  return best;
}

Fit fit_of(const TowerNames& tower, const Meeting& meeting, const TensorStats& a,
           const TensorStats& b) {
  const Profile of_a = side_profile(tower, a, meeting.a, false);
  const Profile of_b = side_profile(tower, b, meeting.b, false);
  Fit fit{.name_a = {}, .name_b = {}, .as_is = correlation(of_a, of_b), .channels = of_a.size()};
  if (meeting.b.of_heads && of_a.size() == of_b.size()) {
    const auto heads = static_cast<size_t>(tower.kv_heads);
    fit.best_head = best_head(of_a, of_b, heads);
    fit.head_channels = of_a.size() / heads;
  }
  if (a.rows == a.columns)
    fit.a_transposed = correlation(side_profile(tower, a, meeting.a, true), of_b);
  if (b.rows == b.columns)
    fit.b_transposed = correlation(of_a, side_profile(tower, b, meeting.b, true));
  return fit;
}

std::vector<Fit> fits_of(const TowerNames& tower, const StatsByName& stats,
                         const Meeting& meeting) {
  std::vector<Fit> fits;
  for (const int64_t layer : tower.numbers) {
    const std::string name_a = tower.weight(layer, meeting.a.module);
    const std::string name_b = tower.weight(layer, meeting.b.module);
    if (!is_usable(stats.at(name_a)) || !is_usable(stats.at(name_b))) continue;
    fits.push_back(fit_of(tower, meeting, stats.at(name_a), stats.at(name_b)));
    fits.back().name_a = name_a;
    fits.back().name_b = name_b;
  }
  return fits;
}

/// Fisher's transform: its deviation is 1 / sqrt(channels - 3) for any correlation.
double fisher(double correlation) { return std::atanh(std::clamp(correlation, -0.999, 0.999)); }

double chance_of_channels(size_t channels) {
  return 1 / std::sqrt(static_cast<double>(channels) - 3);
}
double chance_of_fit(const Fit& fit) { return chance_of_channels(fit.channels); }

/// Whether the correlation is possible for unrelated matrices.
bool may_be_unrelated(const Fit& fit) {
  const auto bound = [](double least, size_t channels) {
    return channels < kLeastChannels ? 1
                                     : std::max(least, kNoChance * chance_of_channels(channels));
  };
  return fit.as_is < kNoFit && fit.as_is > -bound(kNoFit, fit.channels) &&
         fit.best_head < bound(kFits, fit.head_channels);
}

std::string two_digits(double value) { return format_number(value, "%.2f"); }

/// Whether the transposed matrix matches: clearly, or less so if the other layers match as stored.
/// `usual`: their match, 0: none.
bool fits_transposed(const Fit& fit, double usual) {
  const double gained = (fisher(fit.turned()) - fisher(fit.as_is)) / chance_of_fit(fit);
  const double lacks = (fisher(usual) - fisher(fit.as_is)) / chance_of_fit(fit);
  if (fit.channels < kLeastChannels || fit.as_is > kNoFit) return false;
  return (fit.turned() > kTransposed && gained > 6) ||
         (fit.turned() > kBesideFitting && usual > kBesideFitting && gained > 4 && lacks > 4 &&
          fit.as_is < 0.5 * std::min(usual, fit.turned()));
}

/// The match of a matrix's side on the residual stream with the other layers' summed profiles. 0 if
/// there are none.
double outer_fit(const StatsByName& stats, const Side& side, const std::vector<std::string>& names,
                 const std::string& name) {
  const auto outer = [&](const std::string& of) {
    return logs(side.rows ? stats.at(of).column_squares : stats.at(of).row_squares);
  };
  const Profile own = outer(name);
  Profile others(own.size());
  for (const std::string& other : names) {
    const Profile profile = other == name ? Profile(own.size()) : outer(other);
    for (size_t i = 0; i < std::min(own.size(), profile.size()); ++i) others[i] += profile[i];
  }
  return correlation(own, others);
}

/// Two profiles of the residual stream match each other, too: if transposing either matrix helps,
/// the transposed one is the one that matches the other layers less.
void choose_side(const StatsByName& stats, const Meeting& meeting, const std::vector<Fit>& fits,
                 Fit& fit) {
  if (std::min(fit.a_transposed, fit.b_transposed) < kBesideFitting || fits.size() < 2) return;
  std::vector<std::string> names_a, names_b;
  for (const Fit& each : fits) {
    names_a.push_back(each.name_a);
    names_b.push_back(each.name_b);
  }
  const bool is_a = outer_fit(stats, meeting.a, names_a, fit.name_a) <
                    outer_fit(stats, meeting.b, names_b, fit.name_b);
  (is_a ? fit.b_transposed : fit.a_transposed) = 0;
}

Suspicion transposed(const Meeting& meeting, const Fit& fit, const std::string& usual) {
  const bool is_a = fit.a_transposed > fit.b_transposed;
  const Side &odd = is_a ? meeting.a : meeting.b, &other = is_a ? meeting.b : meeting.a;
  return {.weight = 3000,
          .name = is_a ? fit.name_a : fit.name_b,
          .what = "looks transposed",
          .found = "its " + std::string(odd.rows ? "rows" : "columns") + " fit " + other.module +
                   " by a correlation of " + two_digits(fit.as_is) + ", transposed by " +
                   two_digits(fit.turned()),
          .neighbours = usual,
          .next = kCompare};
}

Suspicion misfit(const Fit& fit, double usual) {
  return {.weight = 300,
          .name = fit.name_a + " and " + fit.name_b,
          .what = "do not fit each other",
          .found = "norms of the channels that they share correlate by " + two_digits(fit.as_is),
          .neighbours = "in the other layers by " + two_digits(usual) +
                        ": one of the two may be another layer's, permuted or not trained",
          .next = kCompare};
}

}  // namespace

double correlation(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size() || a.empty()) return 0;
  double mean_a = 0, mean_b = 0, aa = 0, bb = 0, ab = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    mean_a += a[i] / static_cast<double>(a.size());
    mean_b += b[i] / static_cast<double>(a.size());
  }
  for (size_t i = 0; i < a.size(); ++i) {
    aa += (a[i] - mean_a) * (a[i] - mean_a);
    bb += (b[i] - mean_b) * (b[i] - mean_b);
    ab += (a[i] - mean_a) * (b[i] - mean_b);
  }
  return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 0;
}

std::vector<Suspicion> odd_fits(const TowerNames& tower, const StatsByName& stats) {
  std::vector<Suspicion> found;
  for (const Meeting& meeting : meetings(tower)) {
    const std::vector<Fit> fits = fits_of(tower, stats, meeting);
    for (const Fit& fit : fits) {
      std::vector<double> others;
      for (const Fit& other : fits) {
        if (&other != &fit) others.push_back(fisher(other.as_is));
      }
      const double usual = std::tanh(median(others));
      const double least = std::max(kChances * chance_of_fit(fit),
                                    others.size() > 2 ? kSpreads * spread_of(others) : 0);
      if (fits_transposed(fit, others.size() >= 2 ? usual : 0)) {
        Fit chosen = fit;
        choose_side(stats, meeting, fits, chosen);
        found.push_back(transposed(meeting, chosen,
                                   "in the other layers " + two_digits(usual) + " as they are"));
      } else if (others.size() >= 2 && fit.channels >= kLeastChannels && may_be_unrelated(fit) &&
                 usual > kFits && fisher(usual) - fisher(fit.as_is) > least) {
        found.push_back(misfit(fit, usual));
      }
    }
  }
  return found;
}

std::vector<Suspicion> odd_projector(const family::ProjectorShape& projector,
                                     const StatsByName& stats) {
  if (projector.layers.size() != 2) return {};
  const Meeting meeting = {{projector.layers[0].weight(), true},
                           {projector.layers[1].weight(), false}};
  const TensorStats &a = stats.at(meeting.a.module), &b = stats.at(meeting.b.module);
  if (!is_usable(a) || !is_usable(b)) return {};
  Fit fit = fit_of({}, meeting, a, b);
  fit.name_a = meeting.a.module;
  fit.name_b = meeting.b.module;
  if (!fits_transposed(fit, 0)) return {};
  return {transposed(meeting, fit, "trained layers fit as they are")};
}

}  // namespace lft::train
