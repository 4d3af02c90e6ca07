#include "src/data/sources/epoch_sources.h"

#include <algorithm>
#include <cmath>

#include "src/base/hash.h"

namespace lft::data {
namespace {

constexpr uint64_t kChoiceStream =
    0x6d69787475726521ull;  // separates the choice of rows from the order of an epoch
constexpr double kMostTaken = 0x1p53;

}  // namespace

int64_t rows_taken(double weight, int64_t rows) {
  if (rows == 0) return 0;
  const double wanted = std::floor(weight * static_cast<double>(rows) + 0.5);
  return wanted > kMostTaken ? -1 : std::max<int64_t>(static_cast<int64_t>(wanted), 1);
}

EpochItems::EpochItems(std::vector<SourceShare> shares, uint64_t seed, int64_t epoch)
    : shares_(std::move(shares)), seed_(seed), epoch_(epoch) {}

int64_t EpochItems::size() const {
  int64_t items = 0;
  for (const SourceShare& share : shares_) items += share.taken;
  return items;
}

int64_t EpochItems::row(int64_t item) const {
  size_t source = 0;
  for (; item >= shares_[source].taken; ++source) item -= shares_[source].taken;
  const SourceShare& share = shares_[source];
  const int64_t whole = share.taken / share.rows * share.rows, chosen = share.taken - whole;
  if (item < whole) return share.begin + item % share.rows;
  // A pass over the rows is divided into as many selections as fit, one per epoch.
  const int64_t choices = share.rows / chosen, pass = epoch_ / choices, of_pass = epoch_ % choices;
  const auto place = static_cast<uint64_t>(of_pass * chosen + item - whole);
  uint64_t key = permuted(static_cast<uint64_t>(pass), uint64_t{1} << 62, seed_ ^ kChoiceStream);
  key ^= static_cast<uint64_t>(source) * 0x9e3779b97f4a7c15ull;
  return share.begin +
         static_cast<int64_t>(permuted(place, static_cast<uint64_t>(share.rows), key));
}

}  // namespace lft::data
