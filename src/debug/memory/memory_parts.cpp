#include "src/debug/memory/memory_parts.h"

#include <algorithm>
#include <map>

namespace lft::debug {
namespace {

/// The step that an event belongs to; nullptr before the first one.
const StepMarks* step_of(const std::vector<StepMarks>& steps, int64_t event) {
  const auto behind = std::ranges::upper_bound(steps, event, {}, &StepMarks::begin);
  return behind == steps.begin() ? nullptr : &*(behind - 1);
}

bool held_at(const train::LedgerEntry& entry, int64_t event) {
  return entry.born < event && (entry.died < 0 || entry.died >= event);
}

MemoryUse use_in_step(const train::LedgerEntry& entry, const StepMarks& step,
                      const std::vector<int64_t>& backward) {
  if (entry.born >= step.end) return MemoryUse::kOther;
  if (held_at(entry, step.end)) return MemoryUse::kKept;
  if (entry.born >= step.gradients_ready) return MemoryUse::kWorkspace;
  if (entry.place.backward)
    return held_at(entry, step.gradients_ready) ? MemoryUse::kGradients : MemoryUse::kWorkspace;
  if (entry.place.module.empty()) return MemoryUse::kBatch;
  const auto next = std::upper_bound(backward.begin(), backward.end(), entry.born);
  return next != backward.end() && entry.died > *next ? MemoryUse::kActivations
                                                      : MemoryUse::kWorkspace;
}

struct Change {
  int64_t event, bytes;
  MemoryUse use;
};

std::vector<Change> changes(const std::vector<train::LedgerEntry>& entries,
                            const std::vector<MemoryUse>& uses) {
  std::vector<Change> all;
  for (size_t i = 0; i < entries.size(); ++i) {
    all.push_back({entries[i].born, entries[i].bytes, uses[i]});
    if (entries[i].died >= 0) all.push_back({entries[i].died, -entries[i].bytes, uses[i]});
  }
  std::ranges::sort(all, {}, &Change::event);
  return all;
}

/// Memory after every event from `begin` to `end`.
std::vector<MemoryMoment> moments_of(const std::vector<Change>& changes, int64_t begin,
                                     int64_t end) {
  std::vector<MemoryMoment> all;
  MemoryMoment now;
  for (const Change& change : changes) {
    if (change.event >= end) break;
    now.event = change.event;
    now.bytes += change.bytes;
    now.by_use[static_cast<size_t>(change.use)] += change.bytes;
    if (change.event >= begin) all.push_back(now);
  }
  return all;
}

/// Keeps the highest moment of each of equal intervals, so that no peak is lost.
std::vector<MemoryMoment> thin_out(const std::vector<MemoryMoment>& all, size_t points) {
  if (all.size() <= points) return all;
  std::vector<MemoryMoment> out;
  for (size_t s = 0; s < points; ++s) {
    const auto begin = all.begin() + static_cast<int64_t>(all.size() * s / points);
    const auto end = all.begin() + static_cast<int64_t>(all.size() * (s + 1) / points);
    out.push_back(*std::ranges::max_element(begin, end, {}, &MemoryMoment::bytes));
  }
  return out;
}

bool of_a_module(MemoryUse use) {
  return use == MemoryUse::kActivations || use == MemoryUse::kGradients ||
         use == MemoryUse::kWorkspace || use == MemoryUse::kKept;
}

std::vector<MemoryModule> modules_at(const std::vector<train::LedgerEntry>& entries,
                                     const std::vector<MemoryUse>& uses, int64_t event) {
  std::map<std::string, MemoryModule> modules;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!of_a_module(uses[i]) || !held_at(entries[i], event + 1)) continue;
    MemoryModule& module =
        modules[entries[i].place.module.empty() ? "outside the model" : entries[i].place.module];
    module.bytes += entries[i].bytes;
    ++module.blocks;
  }
  std::vector<MemoryModule> sorted;
  for (const auto& [name, module] : modules) sorted.push_back({name, module.bytes, module.blocks});
  std::ranges::stable_sort(sorted, std::ranges::greater(), &MemoryModule::bytes);
  return sorted;
}

/// One-time allocations may remain after the first step. A block that every step replaces is no
/// leak: one remains in total, not one per step.
std::vector<train::LeakGroup> leaks_of(const std::vector<train::LedgerEntry>& entries,
                                       const std::vector<StepMarks>& steps) {
  if (steps.size() < 3) return {};
  std::vector<train::LedgerEntry> left;
  for (const train::LedgerEntry& entry : entries) {
    if (entry.born >= steps[1].begin && entry.born < steps.back().end &&
        held_at(entry, steps.back().end)) {
      left.push_back(entry);
      left.back().died = -1;
    }
  }
  std::vector<train::LeakGroup> groups = train::group_held(left);
  std::erase_if(groups, [&](const train::LeakGroup& group) {
    return group.count < static_cast<int64_t>(steps.size()) - 1;
  });
  return groups;
}

}  // namespace

const char* use_name(MemoryUse use) {
  constexpr std::array<const char*, kMemoryUses> kNames = {
      "frozen weights", "trainables", "optimizer state",   "batch", "activations",
      "gradients",      "workspace",  "outlives its step", "other"};
  return kNames[static_cast<size_t>(use)];
}

std::vector<MemoryUse> classify(const std::vector<train::LedgerEntry>& entries,
                                const std::unordered_map<const void*, MemoryUse>& known,
                                const std::vector<StepMarks>& steps) {
  std::vector<int64_t> backward;
  for (const train::LedgerEntry& entry : entries) {
    if (entry.place.backward) backward.push_back(entry.born);
  }
  std::vector<MemoryUse> uses;
  for (const train::LedgerEntry& entry : entries) {
    const StepMarks* step = step_of(steps, entry.born);
    const auto found = step == nullptr && entry.died < 0 ? known.find(entry.block) : known.end();
    if (found != known.end()) {
      uses.push_back(found->second);
    } else {
      uses.push_back(step == nullptr ? MemoryUse::kOther : use_in_step(entry, *step, backward));
    }
  }
  return uses;
}

MemoryPicture picture(const std::vector<train::LedgerEntry>& entries,
                      const std::vector<MemoryUse>& uses, const std::vector<StepMarks>& steps,
                      size_t points) {
  MemoryPicture result;
  if (steps.empty()) return result;
  const std::vector<MemoryMoment> all =
      moments_of(changes(entries, uses), steps.front().begin, steps.back().end);
  if (all.empty()) return result;
  result.peak = *std::ranges::max_element(all, {}, &MemoryMoment::bytes);
  result.modules = modules_at(entries, uses, result.peak.event);
  result.timeline = thin_out(all, points);
  result.leaks = leaks_of(entries, steps);
  return result;
}

}  // namespace lft::debug
