// Detects randomly initialised weights: independent values of one distribution. The sums
// of squares of n such values vary by their mean times sqrt((k - 1) / n), where k is the
// fourth moment over the square of the second, from row to row and from column to column.
// Training gives some rows and columns more than others: in the weakest layer of the
// quickstart base the variance is four times that, in most ten times and more. Training
// also causes outliers: k is at most 3 after a normal or uniform initialisation, and 14
// in a matrix of SmolLM2 whose outliers would hide that its rows differ. A model with
// only such matrices is untrained, which is no fault, and one with little training is
// mixed: random weights are a fault only next to clearly trained ones.
#include <algorithm>
#include <cmath>

#include "src/base/numeric.h"
#include "src/base/text.h"
#include "src/train/weights/odd_weights.h"

namespace lft::train {
namespace {

constexpr int64_t kLeastLines = 8;
constexpr size_t kLeastMatrices = 4;
constexpr double kClearlyTrained = 4;  // the median of training_shown() of the compared weights
constexpr char kNext[] =
    "compare the sha256 of the file with the published one's; if it was converted, look for names "
    "that the converter left out (transformers says \"newly initialized\")";

/// The variance of the lines' sums of squares over that of independent values; 1 if they are.
double unevenness(const std::vector<double>& squares, double values_each, double ratio) {
  double mean = 0, variance = 0;
  for (const double square : squares) mean += square / static_cast<double>(squares.size());
  for (const double square : squares)
    variance += (square - mean) * (square - mean) / static_cast<double>(squares.size());
  return variance / (mean * mean) * values_each / std::max(ratio - 1, 1e-6);
}

double fourth_ratio(const TensorStats& one) { return one.fourth / std::pow(one.rms, 4); }

/// Its larger unevenness, minus chance: up to 1 may be an initialisation. From n lines the variance
/// is known to sqrt(2 / n); six times that is never chance.
double training_shown(const TensorStats& one) {
  const double ratio = fourth_ratio(one);
  const auto rows = static_cast<double>(one.rows_seen), columns = static_cast<double>(one.columns);
  const double by_row = unevenness(one.row_squares, columns, ratio) / (1 + 6 * std::sqrt(2 / rows));
  const double by_column =
      unevenness(one.column_squares, rows, ratio) / (1 + 6 * std::sqrt(2 / columns));
  return std::max(by_row, by_column);
}

/// More outliers than n normal values have, by six deviations of their ratio.
bool has_outliers(const TensorStats& one) {
  const double values = static_cast<double>(one.rows_seen) * static_cast<double>(one.columns);
  return fourth_ratio(one) > 3 + 6 * std::sqrt(24 / values);
}

bool looks_random(const TensorStats& one) {
  return one.rows_seen >= kLeastLines && one.columns >= kLeastLines && one.rms > 0 &&
         !has_outliers(one) && training_shown(one) <= 1;
}

/// The share of a tower that looks randomly initialised.
struct TowerJudged {
  TowerNames names;
  size_t matrices = 0, random = 0;
  std::map<int64_t, std::pair<size_t, size_t>> layers;  // random ones of all
  std::vector<std::string> random_names;
  std::map<std::string, std::vector<double>> shown;  // by kind, for weights that are not random
  bool norms_trained = false, tables_trained = false;
  double share() const {
    return matrices == 0 ? 0 : static_cast<double>(random) / static_cast<double>(matrices);
  }
  /// Adapters merged into a random model change its layers, but neither norms nor tables.
  bool trained() const {
    return matrices >= kLeastMatrices && share() <= 0.1 && norms_trained && tables_trained &&
           median_shown() >= kClearlyTrained;
  }
  double median_shown() const {
    std::vector<double> all;
    for (const auto& [kind, values] : shown) all.insert(all.end(), values.begin(), values.end());
    return median(all);
  }
};

bool varies(const TensorStats& one) { return one.highest - one.lowest > 1e-3 * one.largest(); }

TowerJudged judge(const TowerNames& names, const StatsByName& stats) {
  TowerJudged tower;
  tower.names = names;
  std::vector<std::string> modules = names.into;
  modules.insert(modules.end(), names.out_of.begin(), names.out_of.end());
  int64_t varying = 0;
  for (const int64_t layer : names.numbers) {
    for (const std::string& module : modules) {
      const std::string name = names.weight(layer, module);
      const TensorStats& one = stats.at(name);
      if (one.flat() || one.non_finite > 0) continue;
      ++tower.matrices;
      ++tower.layers[layer].second;
      if (!looks_random(one)) {
        tower.shown[tensor_kind(name).kind].push_back(training_shown(one));
        continue;
      }
      ++tower.random;
      ++tower.layers[layer].first;
      tower.random_names.push_back(name);
    }
    for (const std::string& norm : names.norms)
      varying += varies(stats.at(names.weight(layer, norm)));
  }
  tower.norms_trained = varying >= names.count;  // half of two per layer
  tower.tables_trained =
      std::any_of(names.tables.begin(), names.tables.end(), [&](const std::string& table) {
        const TensorStats& one = stats.at(table);
        return one.rms > 0 && !one.flat() && !looks_random(one);
      });
  return tower;
}

Suspicion random_suspicion(double weight, const std::string& name, const std::string& found,
                           const std::string& neighbours) {
  return {.weight = weight,
          .name = name,
          .what = kLooksRandom,
          .found = found,
          .neighbours = neighbours,
          .next = kNext};
}

std::string evenness_text(const TensorStats& one) {
  return "its rows and columns are as even as independent values (" +
         format_number(training_shown(one)) + " of what chance allows)";
}

std::string trained_text(const TowerJudged& tower) {
  return "in the " + tower.names.label + " " + std::to_string(tower.random) + " of " +
         std::to_string(tower.matrices) + " are";
}

/// Complete layers, and single matrices of a kind that is trained elsewhere.
void within_tower(const TowerJudged& tower, const StatsByName& stats,
                  std::vector<Suspicion>& found) {
  if (tower.share() > 0.75 || !tower.norms_trained || !tower.tables_trained ||
      tower.median_shown() < kClearlyTrained)
    return;
  std::map<std::string, int64_t> random_of_kind;
  for (const std::string& name : tower.random_names) ++random_of_kind[tensor_kind(name).kind];
  for (const auto& [layer, counts] : tower.layers) {
    if (counts.first == counts.second && counts.second >= kLeastMatrices) {
      found.push_back(random_suspicion(
          2000, tower.names.layers + std::to_string(layer),
          "all " + std::to_string(counts.second) + " matrices have even rows and columns",
          "of the whole " + tower.names.label + " " + std::to_string(tower.random) + " of " +
              std::to_string(tower.matrices) + " have"));
    }
  }
  for (const std::string& name : tower.random_names) {
    const TensorKind kind = tensor_kind(name);
    const auto& counts = tower.layers.at(kind.layer);
    if (counts.first == counts.second && counts.second >= kLeastMatrices) continue;
    // A quarter of the kind at most, so that at least three others are trained.
    if (4 * random_of_kind[kind.kind] > tower.names.count) continue;
    const auto kin = tower.shown.find(kind.kind);
    if (kin == tower.shown.end() || median(kin->second) < kClearlyTrained) continue;
    found.push_back(random_suspicion(50, name, evenness_text(stats.at(name)),
                                     "those of the other layers are not"));
  }
}

/// A table or a part of the projector between trained towers.
void beside_towers(const std::vector<TowerJudged>& towers, const family::ProjectorShape& projector,
                   const StatsByName& stats, std::vector<Suspicion>& found) {
  bool all_trained = true;
  for (const TowerJudged& tower : towers) {
    const bool trained = tower.trained();
    all_trained = all_trained && trained;
    for (const std::string& table : tower.names.tables) {
      // Positions are few, and change little in training.
      const bool named =
          std::ranges::any_of(found, [&](const auto& one) { return one.name == table; });
      if (trained && !named && !table.ends_with("position_embedding.weight") &&
          looks_random(stats.at(table)))
        found.push_back(
            random_suspicion(1500, table, evenness_text(stats.at(table)), trained_text(tower)));
    }
  }
  for (const family::ProjectorShape::Layer& layer : projector.layers) {
    const std::string name = layer.weight();
    if (!all_trained || !looks_random(stats.at(name))) continue;
    found.push_back(
        random_suspicion(1500, name, evenness_text(stats.at(name)), "both towers are trained"));
    found.back().next =
        "train it whole (full: [projector]), or take a base whose projector is trained";
  }
}

std::vector<TowerJudged> judge_all(const family::ModelConfig& config, const StatsByName& stats) {
  std::vector<TowerJudged> towers;
  for (const TowerNames& names : towers_of(config)) towers.push_back(judge(names, stats));
  return towers;
}

bool mostly_random(const TowerJudged& tower) {
  return tower.share() >= 0.9 && tower.matrices >= kLeastMatrices;
}

}  // namespace

bool looks_untrained(const family::ModelConfig& config, const StatsByName& stats) {
  return std::ranges::all_of(judge_all(config, stats), mostly_random);
}

std::vector<Suspicion> as_initialised(const family::ModelConfig& config, const StatsByName& stats) {
  const std::vector<TowerJudged> towers = judge_all(config, stats);
  std::vector<Suspicion> found;
  for (const TowerJudged& tower : towers) {
    const auto other = std::ranges::find_if(
        towers, [&](const TowerJudged& one) { return &one != &tower && one.trained(); });
    if (mostly_random(tower) && other != towers.end()) {
      found.push_back(random_suspicion(
          5000, "the " + tower.names.label + " (" + tower.names.layers + "*)",
          std::to_string(tower.random) + " of its " + std::to_string(tower.matrices) +
              " matrices have rows and columns as even as independent values",
          trained_text(*other)));
    } else {
      within_tower(tower, stats, found);
    }
  }
  beside_towers(towers, config.family->layout(config).projector, stats, found);
  return found;
}

}  // namespace lft::train
