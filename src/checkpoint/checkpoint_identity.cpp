#include <cstdio>
#include <random>
#include <set>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/text.h"
#include "src/checkpoint/checkpoint.h"
#include "src/recipe/diff.h"

namespace lft::checkpoint {
namespace {

const std::string kNothing = "nothing";

/// Compared only if both sides have it: a run may begin or end to evaluate, and older checkpoints
/// record nothing of data.eval.
bool is_optional(const std::string& key) { return key.starts_with("held-out "); }

struct Difference {
  std::string key, stored, now;
};

std::vector<Difference> differences(const io::Json& stored, const io::Json& now) {
  std::set<std::string> keys;
  for (const io::Json* side : {&stored, &now}) {
    for (const auto& [key, value] : side->items()) keys.insert(key);
  }
  const auto text = [](const io::Json& side, const std::string& key) {
    return side.contains(key) ? io::describe_json(side[key]) : kNothing;
  };
  std::vector<Difference> out;
  for (const std::string& key : keys) {
    const bool both = stored.contains(key) && now.contains(key);
    if (both ? stored[key] == now[key] : is_optional(key)) continue;
    out.push_back({key, text(stored, key), text(now, key)});
  }
  return out;
}

recipe::Recipe stored_recipe(const Checkpoint& checkpoint) {
  try {
    return recipe::parse_recipe(checkpoint.recipe,
                                "recipe.yaml of step " + std::to_string(checkpoint.step));
  } catch (const Error& error) {
    throw Error(ErrorKind::kCheckpoint, error.info());
  }
}

}  // namespace

std::vector<std::string> identity_changes(const io::Json& stored, const io::Json& now) {
  std::vector<std::string> lines;
  for (const Difference& each : differences(stored, now))
    lines.push_back(each.key + ": stored " + each.stored + ", now " + each.now);
  return lines;
}

void check_identity(const Checkpoint& checkpoint, const io::Json& identity,
                    const recipe::Recipe& recipe) {
  std::vector<Difference> changed = differences(checkpoint.identity, identity);
  for (const recipe::RecipeChange& change :
       recipe::changed_fields(stored_recipe(checkpoint), recipe)) {
    if (!change.may_change) changed.push_back({change.key, change.before, change.after});
  }
  if (changed.empty()) return;
  std::vector<std::string> lines;
  bool recorded = true;
  for (const Difference& each : changed) {
    lines.push_back(each.key + ": stored " + each.stored + ", now " + each.now);
    recorded &= each.stored != kNothing;
  }
  refuse(ErrorKind::kCheckpoint,
         "the run is not the one that was saved: " + std::to_string(changed.size()) +
             (changed.size() == 1 ? " difference" : " differences") + "\n" + join(lines, "\n"),
         "step " + std::to_string(checkpoint.step) + " of run " + checkpoint.run_id, {}, {},
         std::string(recorded ? "undo the change"
                              : "finish it with the lft that began it, which recorded less") +
             ", or train in another output_dir (lora.init_from starts from this checkpoint)");
}

std::string environment_warning(const Checkpoint& checkpoint, const io::Json& environment) {
  std::vector<std::string> parts;
  for (const Difference& each : differences(checkpoint.environment, environment)) {
    parts.push_back(each.key + " was " + each.stored + " and is " + each.now);
  }
  return parts.empty() ? ""
                       : "the resumed run is not promised to repeat the saved one bit for bit: " +
                             join(parts);
}

std::string new_run_id() {
  char random[16];
  std::snprintf(random, sizeof random, "-%08x", std::random_device{}());
  return utc_now("%Y%m%d-%H%M%S") + random;
}

}  // namespace lft::checkpoint
