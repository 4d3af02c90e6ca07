// The output of layer a in the residual stream (the columns of o and down) is the input of a later
// layer b (the rows of q, k, v, gate and up): training couples the two, since a's gradient passes
// through b and b reads a's output. An earlier layer never reads it. So
// coupling(a, b) = log(h |I_b O_a|^2 / (|I_b|^2 |O_a|^2)), which is 0 for independent values,
// is larger from an earlier to a later layer than back. In the decoder of the quickstart base the
// difference is 0.45 to 0.63 for every pair, with each of the ten pairs of matrices on its side.
// After 120 steps of training it is 0.1 to 0.2, and already with every one on its side; in random
// models it is below 0.03, with adapters merged into random models below 0.25, with either sign.
// The order is judged if pairs of matrices agree with each other, or differences are large.
#include "src/train/weights/base_order.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "src/base/numeric.h"
#include "src/base/text.h"
#include "src/hf/weights.h"

namespace lft::train {
namespace {

constexpr int64_t kWholeUpTo = 512;  // matrices with more outer lines are reduced to random sums
constexpr int64_t kSketch = 64;      // sums: the square's relative error is sqrt(2 / 64) at most
constexpr double kNoise = 0.03;      // a smaller difference is no evidence
constexpr double kAgree = 0.85;      // the share of pairs of matrices that support one order
constexpr double kAgreedShown = 0.08, kFewShown = 0.15;  // minimum difference then; for few layers
constexpr double kAgreedShare = 0.1;                     // that may support the stored one
constexpr double kInverted = 0.25, kStrongly = 0.4;      // or large differences, in reverse order
constexpr double kShownOrder = 0.25;                     // and in the stored order
constexpr double kOrderSpreads = 3;                      // of all pairs in the correct order
constexpr int64_t kMostLayers = 64;

using LayerPlaces = std::vector<int64_t>;

/// Differences of all pairs of layers: coupling(a, b) - coupling(b, a), and the share of pairs of
/// matrices for which it is positive.
struct Couplings {
  int64_t layers = 0;
  std::vector<double> mean, share;
  double at(int64_t a, int64_t b) const { return mean[static_cast<size_t>(a * layers + b)]; }
  double share_at(int64_t a, int64_t b) const { return share[static_cast<size_t>(a * layers + b)]; }
};

/// [lines, hidden] of a matrix [lines, hidden], or [hidden, lines] for an output matrix.
at::Tensor sketch(const hf::ModelDir& dir, const std::string& name, bool writes, uint64_t seed) {
  const hf::ModelDir::Place& place = dir.tensors.at(name);
  at::Tensor x = hf::read_tensor(dir.files[place.file], dir.info(place));
  if (writes) x = x.t();
  if (x.size(0) <= kWholeUpTo) return x.to(at::kFloat).contiguous();
  at::Generator generator = at::detail::createCPUGenerator(seed);
  at::Tensor sums = at::zeros({kSketch, x.size(1)});
  for (int64_t begin = 0; begin < x.size(0); begin += kWholeUpTo) {
    const int64_t lines = std::min(kWholeUpTo, x.size(0) - begin);
    sums.addmm_(at::randn({kSketch, lines}, generator), x.narrow(0, begin, lines).to(at::kFloat));
  }
  return sums;
}

/// A layer's inputs and outputs: stacks of lines of the residual stream, each of norm 1.
struct LayerSketch {
  std::vector<at::Tensor> reads, writes;
};

LayerSketch sketch_layer(const TowerNames& tower, const hf::ModelDir& dir, int64_t layer) {
  LayerSketch sketched;
  const auto add = [&](std::vector<at::Tensor>& stacks, const std::string& module, bool writing) {
    const size_t seed =
        static_cast<size_t>(100 * layer) + sketched.reads.size() + sketched.writes.size();
    const at::Tensor one = sketch(dir, tower.weight(layer, module), writing, seed);
    stacks.push_back(one / one.norm());
  };
  for (const std::string& module : tower.into) add(sketched.reads, module, false);
  for (const std::string& module : tower.out_of) add(sketched.writes, module, true);
  return sketched;
}

double coupling(const at::Tensor& write, const at::Tensor& read) {
  return std::log(at::matmul(read, write.t()).square().sum().item<double>());
}

/// Mean of the finite differences (a matrix of zeros has none), and the share above 0.
std::pair<double, double> difference_of(const LayerSketch& a, const LayerSketch& b) {
  double sum = 0, positive = 0, count = 0;
  for (size_t read = 0; read < a.reads.size(); ++read) {
    for (size_t write = 0; write < a.writes.size(); ++write) {
      const double difference =
          coupling(a.writes[write], b.reads[read]) - coupling(b.writes[write], a.reads[read]);
      if (!std::isfinite(difference)) continue;
      sum += difference;
      positive += difference > 0;
      ++count;
    }
  }
  return count > 0 ? std::pair{sum / count, positive / count} : std::pair{0.0, 0.5};
}

Couplings couplings_of(const TowerNames& tower, const hf::ModelDir& dir) {
  std::vector<LayerSketch> layers;
  for (const int64_t layer : tower.numbers) layers.push_back(sketch_layer(tower, dir, layer));
  const size_t n = layers.size();
  Couplings couplings{.layers = tower.count,
                      .mean = std::vector<double>(n * n),
                      .share = std::vector<double>(n * n)};
  for (size_t a = 0; a < n; ++a) {
    for (size_t b = a + 1; b < n; ++b) {
      const auto [mean, share] = difference_of(layers[a], layers[b]);
      couplings.mean[a * n + b] = mean;
      couplings.mean[b * n + a] = -mean;
      couplings.share[a * n + b] = share;
      couplings.share[b * n + a] = 1 - share;
    }
  }
  return couplings;
}

/// How well an order agrees with the differences above the noise.
double agreement(const Couplings& couplings, const LayerPlaces& order) {
  double sum = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    for (size_t j = i + 1; j < order.size(); ++j) {
      const double sides = std::abs(2 * couplings.share_at(order[i], order[j]) - 1);
      const double difference = sides * couplings.at(order[i], order[j]);
      sum += std::copysign(std::max(std::abs(difference) - kNoise, 0.0), difference);
    }
  }
  return sum;
}

/// The orders with two layers swapped, or one moved.
std::vector<LayerPlaces> neighbours_of(const LayerPlaces& order) {
  std::vector<LayerPlaces> all;
  for (size_t i = 0; i < order.size(); ++i) {
    for (size_t j = 0; j < order.size(); ++j) {
      LayerPlaces swapped = order, moved = order;
      std::swap(swapped[i], swapped[j]);
      moved.erase(moved.begin() + static_cast<int64_t>(i));
      moved.insert(moved.begin() + static_cast<int64_t>(j), order[i]);
      all.push_back(std::move(swapped));
      all.push_back(std::move(moved));
    }
  }
  return all;
}

/// Greedy search from the stored order, the best change at a time.
LayerPlaces best_order(const Couplings& couplings) {
  LayerPlaces best(static_cast<size_t>(couplings.layers));
  std::iota(best.begin(), best.end(), 0);
  double most = agreement(couplings, best);
  for (bool better = true; better;) {
    better = false;
    for (LayerPlaces& candidate : neighbours_of(best)) {
      const double reached = agreement(couplings, candidate);
      if (reached <= most + 1e-9) continue;
      most = reached;
      best = std::move(candidate);
      better = true;
    }
  }
  return best;
}

/// The positions of each cycle: for two swapped layers, these two.
std::vector<LayerPlaces> cycles_of(const LayerPlaces& order) {
  std::vector<bool> seen(order.size());
  std::vector<LayerPlaces> cycles;
  for (size_t start = 0; start < order.size(); ++start) {
    LayerPlaces cycle;
    for (size_t at = start; !seen[at]; at = static_cast<size_t>(order[at])) {
      seen[at] = true;
      cycle.push_back(static_cast<int64_t>(at));
    }
    std::sort(cycle.begin(), cycle.end());
    if (cycle.size() > 1) cycles.push_back(cycle);
  }
  return cycles;
}

/// Pairs in the wrong order unless the positions of the cycle are filled as in `order`.
struct Inversions {
  double mean = 0, share = 0, strongest = 0;
  int64_t count = 0;
};

Inversions inversions(const Couplings& couplings, const LayerPlaces& order,
                      const LayerPlaces& cycle) {
  LayerPlaces undone(order.size());
  std::iota(undone.begin(), undone.end(), 0);
  for (const int64_t place : cycle)
    undone[static_cast<size_t>(place)] = order[static_cast<size_t>(place)];
  Inversions found;
  for (size_t i = 0; i < undone.size(); ++i) {
    for (size_t j = i + 1; j < undone.size(); ++j) {
      const int64_t before = undone[i], after = undone[j];
      if (before < after) continue;
      const double difference = couplings.at(after, before);  // as stored
      found.mean += difference;
      found.share += couplings.share_at(after, before);
      found.strongest = std::min(found.strongest, difference);
      ++found.count;
    }
  }
  found.mean /= static_cast<double>(found.count);
  found.share /= static_cast<double>(found.count);
  return found;
}

/// The evidence of the tower once its layers are in the best order.
struct OrderShown {
  double usual = 0, spread = 0, share = 0;
  size_t pairs = 0;
  bool agreed() const {
    return pairs >= 3 && share >= kAgree && usual >= (pairs < 6 ? kFewShown : kAgreedShown);
  }
  bool large = false;
};

OrderShown shown_by(const Couplings& couplings, const LayerPlaces& order) {
  std::vector<double> pairs;
  OrderShown shown;
  for (size_t i = 0; i < order.size(); ++i) {
    for (size_t j = i + 1; j < order.size(); ++j) {
      pairs.push_back(couplings.at(order[i], order[j]));
      shown.share += couplings.share_at(order[i], order[j]);
    }
  }
  shown.pairs = pairs.size();
  shown.share /= static_cast<double>(pairs.size());
  shown.usual = median(pairs);
  shown.spread = spread_of(pairs);
  const auto positive = std::count_if(pairs.begin(), pairs.end(), [](double x) { return x > 0; });
  shown.large = shown.usual >= kShownOrder && 4 * positive >= 3 * std::ssize(pairs);
  return shown;
}

/// A few pairs of matrices may support the stored order if only one pair of layers is inverted,
/// more if three agree.
bool is_inverted(const OrderShown& shown, const Inversions& odd) {
  if (odd.mean > shown.usual - kOrderSpreads * shown.spread) return false;
  if (shown.agreed() && odd.share <= kAgreedShare &&
      odd.mean < -std::max(kAgreedShown, 0.4 * shown.usual))
    return true;
  const double most_share = shown.pairs == 1 ? 0.1 : odd.count >= 3 ? 0.4 : 0.2;
  return shown.large && odd.mean < -kInverted && odd.strongest < -kStrongly &&
         odd.share <= most_share;
}

std::string layer_names(const TowerNames& tower, const LayerPlaces& layers) {
  std::vector<std::string> names;
  for (const int64_t layer : layers)
    names.push_back(tower.layers + std::to_string(tower.numbers[static_cast<size_t>(layer)]));
  return join(names, " and ", 8);
}

}  // namespace

LayerOrder layer_order(const TowerNames& tower, const hf::ModelDir& dir, const StatsByName& stats) {
  LayerOrder result;
  const std::string whose = "the order of the " + tower.label + "'s layers";
  if (tower.count < 2 || tower.count > kMostLayers) {
    result.not_judged = whose + " (" + std::to_string(tower.count) + " layers)";
    return result;
  }
  for (const auto& [name, one] : stats) {
    if (one.non_finite == 0 || !name.starts_with(tower.layers)) continue;
    result.not_judged = whose + " (values that are not finite)";
    return result;
  }
  const Couplings couplings = couplings_of(tower, dir);
  const LayerPlaces best = best_order(couplings);
  const OrderShown shown = shown_by(couplings, best);
  if (!shown.agreed() && !shown.large) {
    result.not_judged = whose + " (the weights show none, as those of many sound models)";
    return result;
  }
  for (const LayerPlaces& cycle : cycles_of(best)) {
    const Inversions odd = inversions(couplings, best, cycle);
    if (!is_inverted(shown, odd)) continue;
    result.suspicions.push_back(
        {.weight = 2500,
         .name = layer_names(tower, cycle),
         .what = cycle.size() == 2 ? "look swapped" : "are not in the order of training",
         .found = "what they write fits the layers before them better than those after, by " +
                  format_number(-odd.mean, "%.2f") + " on average",
         .neighbours = "in the right order pairs of the " + tower.label +
                       " fit those after better, by " + format_number(shown.usual, "%.2f"),
         .next = kCompare});
  }
  return result;
}

}  // namespace lft::train
