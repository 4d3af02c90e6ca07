#include "src/train/memory/leak_watch.h"

#include <algorithm>
#include <map>

#include "src/base/errors.h"
#include "src/base/text.h"

namespace lft::train {
namespace {

constexpr int64_t kCertain = 8;   // steps in a row: caches are filled by then
constexpr int64_t kNamesAt = 10;  // steps after which the detailed examination ends

std::string kind_of(const LedgerEntry& entry) {
  const std::string place =
      entry.place.module.empty() ? "outside the model" : "in " + entry.place.module;
  const std::string pass = entry.place.backward         ? " (backward, " + entry.place.node + ")"
                           : entry.place.module.empty() ? ""
                                                        : " (forward)";
  return (entry.shape.empty() ? format_bytes(static_cast<double>(entry.bytes)) : entry.shape) +
         (entry.op.empty() ? " " : " of " + entry.op + " ") + place + pass;
}

}  // namespace

bool LeakWatch::step_done(int64_t ahead) {
  ++steps_;
  const int64_t live = watch_.live() - ahead;
  const bool grew = steps_ > 1 && live > last_live_;
  if (!grew) {
    grown_ = 0;
    start_live_ = live;
    groups_.clear();
    ledger_.reset();
  } else {
    ++grown_;
    if (ledger_) take_names();
    if (!ledger_ && grown_ < kNamesAt) {
      ledger_.emplace(watch_, /*keep_freed=*/false);
      looked_at_ = 0;
    }
    if (grown_ >= kNamesAt) ledger_.reset();
  }
  last_live_ = live;
  if (told_ || grown_ < kCertain || groups_.empty()) return false;
  told_ = true;
  return true;
}

/// At least one per step: what each step replaces is no leak.
void LeakWatch::take_names() {
  ++looked_at_;
  groups_ = group_held(ledger_->entries());
  std::erase_if(groups_, [this](const LeakGroup& group) { return group.count < looked_at_; });
}

std::optional<Growth> LeakWatch::growth() const {
  if (grown_ == 0) return std::nullopt;
  return Growth{.steps = grown_, .bytes = last_live_ - start_live_, .groups = groups_};
}

std::vector<LeakGroup> group_held(const std::vector<LedgerEntry>& entries, int64_t since) {
  std::map<std::string, LeakGroup> groups;
  for (const LedgerEntry& entry : entries) {
    if (entry.died >= 0 || entry.born < since) continue;
    LeakGroup& group = groups[kind_of(entry)];
    ++group.count;
    group.bytes += entry.bytes;
  }
  std::vector<LeakGroup> result;
  for (auto& [what, group] : groups)
    result.push_back({.what = what, .count = group.count, .bytes = group.bytes});
  std::stable_sort(result.begin(), result.end(),
                   [](const LeakGroup& a, const LeakGroup& b) { return a.bytes > b.bytes; });
  return result;
}

std::string describe_groups(const std::vector<LeakGroup>& groups, size_t most) {
  std::vector<std::string> parts;
  for (const LeakGroup& group : groups) {
    parts.push_back(std::to_string(group.count) + " x " + group.what + ", " +
                    format_bytes(static_cast<double>(group.bytes)));
    if (parts.size() == most) break;
  }
  return join(parts, "; ") + (groups.size() > most
                                  ? "; and " + std::to_string(groups.size() - most) + " more kinds"
                                  : "");
}

}  // namespace lft::train
