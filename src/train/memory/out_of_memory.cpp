#include "src/train/memory/out_of_memory.h"

#include <algorithm>
#include <set>
#include <utility>

#include "src/base/errors.h"
#include "src/base/text.h"

namespace lft::train {
namespace {

std::string bytes_text(int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

std::string place_text(const AllocationPlace& place) {
  if (place.backward)
    return "backward pass of " +
           (place.module.empty() ? place.node : place.module + " (" + place.node + ")");
  return place.module.empty() ? "outside the model" : "forward pass of " + place.module;
}

std::string growth_text(const Growth& growth) {
  std::string text = "what outlives a step grew in each of the last " +
                     std::to_string(growth.steps) + " steps, by " + bytes_text(growth.bytes) +
                     " in all: something keeps tensors";
  return growth.groups.empty() ? text : text + ": " + describe_groups(growth.groups);
}

constexpr size_t kMostChanges = 3;
constexpr char kAnyway[] =
    "lower train.batch_size (and raise train.grad_accum), or set "
    "train.activation_checkpointing=block";

/// Changes that would fit, the cheapest first, by the memory plan. The failure gives the available
/// memory more exactly than the machine does.
std::string changes_text(RunInputs& inputs, const std::optional<FailedAllocation>& failed) {
  const std::vector<data::SampleLength>& lengths = sample_lengths(inputs.data);
  MemoryPlan plan = plan_memory(inputs, worst_micro_batch(inputs, lengths));
  plan.free = free_memory_now(inputs.device);
  if (failed)
    plan.free = std::min(plan.free, static_cast<double>(failed->live) +
                                        std::min(failed->free, static_cast<double>(failed->bytes)));
  return best_changes(mitigations(inputs, lengths, plan));
}

/// Determines whether the batch does not fit or memory grew.
std::string size_or_growth(int64_t steps_done, const std::optional<Growth>& growth) {
  if (steps_done == 0) return "no step was done before: a matter of size, nothing has grown";
  if (growth) return growth_text(*growth);
  return std::to_string(steps_done) + (steps_done == 1 ? " step was" : " steps were") +
         " done before and nothing has grown: a larger batch than before, or memory that another "
         "process took";
}

}  // namespace

std::string best_changes(std::vector<Mitigation> changes) {
  const bool one_is_enough = std::ranges::any_of(changes, &Mitigation::fits);
  if (one_is_enough) std::erase_if(changes, [](const Mitigation& change) { return !change.fits; });
  std::vector<std::string> parts;
  std::set<std::string> fields;  // the mildest for each field
  for (const Mitigation& change : changes) {
    if (parts.size() == kMostChanges) break;
    if (!fields.insert(change.change.substr(0, change.change.find('='))).second) continue;
    parts.push_back(change.change + " saves " + format_bytes(change.saves) + " (" + change.cost +
                    ")");
  }
  if (parts.empty()) return kAnyway;
  return one_is_enough ? join(parts, "; or ")
                       : "none of these is enough alone: " + join(parts, "; ");
}

void RunMemory::begin(const std::string& what, std::vector<std::string> ids) {
  what_ = what;
  ids_ = std::move(ids);
  watch.new_step();
}

std::string RunMemory::step_done(bool look_for_leaks, int64_t ahead) {
  ++steps_done_;
  if (!look_for_leaks || !leaks.step_done(ahead)) return "";
  return growth_text(*leaks.growth()) + "; lft debug memory draws them";
}

ErrorInfo RunMemory::describe() const {
  const std::optional<FailedAllocation> failed = watch.failed();
  std::string where = what_;
  if (failed) where += ", " + place_text(failed->place);
  if (!ids_.empty()) where += "; samples " + join_names(ids_, 8);
  const double free = failed ? failed->free : free_memory_now(device_);
  const std::string tensors = "tensors held " + bytes_text(failed ? failed->live : watch.live()) +
                              ", at most " + bytes_text(watch.peak());
  return {.what = "out of memory on " + device_.str() + ": " +
                  (failed ? bytes_text(failed->bytes) + " asked for, "
                          : "an allocation outside the tensors failed, ") +
                  format_bytes(free) + " free",
          .where = where,
          .found = tensors + "; " + size_or_growth(steps_done_, leaks.growth()),
          .expected = {},
          .next = {}};
}

Error out_of_memory(ErrorInfo described, const RunMemory& memory, RunInputs& inputs) {
  const std::optional<Growth> growth = memory.leaks.growth();
  if (growth && !growth->groups.empty())
    described.next = "find what keeps these tensors (lft debug memory draws them); else ";
  try {
    described.next += changes_text(inputs, memory.watch.failed());
  } catch (const std::exception&) {  // memory is short
    described.next += kAnyway;
  }
  return Error(ErrorKind::kResource, std::move(described));
}

}  // namespace lft::train
