#include "src/debug/repeat/diff.h"

#include <array>
#include <functional>
#include <map>
#include <set>

#include "kernels/common/error.h"
#include "src/checkpoint/checkpoint.h"
#include "src/io/files.h"
#include "src/io/json.h"
#include "src/recipe/diff.h"

namespace lft::debug {
namespace {

/// A step's fields in causal order, and the meaning of a difference whose first field it is.
struct StepField {
  const char* name;
  Parting parting;
};
constexpr std::array kStepFields = {StepField{"ids_hash", Parting::kSamples},
                                    StepField{"tokens", Parting::kContents},
                                    StepField{"supervised_tokens", Parting::kContents},
                                    StepField{"precision", Parting::kPrecision},
                                    StepField{"loss_scale", Parting::kPrecision},
                                    StepField{"event", Parting::kOutcome},
                                    StepField{"lr", Parting::kSchedule},
                                    StepField{"loss", Parting::kNumbers},
                                    StepField{"grad_norm", Parting::kNumbers},
                                    StepField{"run_hash", Parting::kNumbers}};

/// The result of each step: its line, or the event of one that was not taken.
using Steps = std::map<int64_t, io::Json>;

bool tells_of_a_step(const io::Json& line) {
  if (!line.contains("event")) return true;
  const io::Json& event = line["event"];
  return event == "step_skipped" || event == "fp32_recovery" || event == "stopped";
}

Steps read_steps(RunSide& side) {
  Steps steps;
  const std::string path = side.path + "/metrics.jsonl";
  const std::string text = io::read_file(path);
  int64_t number = 0;
  for (size_t begin = 0, end = 0; (end = text.find('\n', begin)) != std::string::npos;
       begin = end + 1) {  // an incomplete last line is skipped
    const std::string where = path + ":" + std::to_string(++number);
    io::Json line = io::parse_json(std::string_view(text).substr(begin, end - begin), where);
    if (!line.is_object()) {
      refuse(ErrorKind::kInput, "not a line of metrics", where, io::describe_json(line),
             "an object", "take the line out");
    }
    if (!tells_of_a_step(line)) continue;
    const int64_t step = io::json_int(line, "step", 0, INT64_MAX, where);
    if (line.contains("event") && steps.contains(step))
      continue;  // the run stopped after a step that was taken
    steps[step] = std::move(line);
  }
  if (!steps.empty()) side.last_step = steps.rbegin()->first;
  return steps;
}

std::string value_text(const io::Json& object, const std::string& key) {
  return object.contains(key) ? object[key].dump() : "nothing";
}

std::vector<FieldDifference> differences(const io::Json& a, const io::Json& b) {
  std::set<std::string> keys;
  for (const io::Json* side : {&a, &b}) {
    for (const auto& [key, value] : side->items()) keys.insert(key);
  }
  std::vector<FieldDifference> out;
  for (const std::string& key : keys) {
    if (!a.contains(key) || !b.contains(key) || a[key] != b[key])
      out.push_back({key, value_text(a, key), value_text(b, key)});
  }
  return out;
}

/// Nested objects become "outer.inner".
io::Json flat(const io::Json& object) {
  io::Json out = io::Json::object();
  for (const auto& [key, value] : object.items()) {
    if (!value.is_object()) {
      out[key] = value;
      continue;
    }
    for (const auto& [inner, inner_value] : value.items()) out[key + "." + inner] = inner_value;
  }
  return out;
}

/// Compares the file `name` of both directories; a missing or unreadable file is a note, not an
/// error.
void compare_files(RunDiff& diff, const std::string& name,
                   const std::function<void(const std::string&, const std::string&)>& compare) {
  try {
    compare(diff.a.path + "/" + name, diff.b.path + "/" + name);
  } catch (const Error& error) {
    diff.notes.push_back(name + " is not compared: " + error.what() + " (" + error.info().where +
                         ")");
  }
}

void compare_recipes(RunDiff& diff) {
  compare_files(diff, "recipe.resolved.yaml", [&](const std::string& a, const std::string& b) {
    for (const recipe::RecipeChange& change :
         recipe::changed_fields(recipe::read_recipe(a), recipe::read_recipe(b))) {
      if (change.key != "output_dir")
        diff.recipe.push_back({change.key, change.before, change.after});
    }
  });
}

void compare_environments(RunDiff& diff) {
  compare_files(diff, "environment.json", [&](const std::string& a, const std::string& b) {
    diff.environment = differences(flat(io::read_json_file(a)), flat(io::read_json_file(b)));
  });
}

/// The newest checkpoint's identity; an empty object without one.
io::Json identity_of(RunSide& side) {
  for (const checkpoint::CheckpointStatus& status :
       checkpoint::list_checkpoints(side.path + "/checkpoints", /*verify=*/false)) {
    if (!status.fault.empty()) continue;
    side.run_id = status.run_id;
    return status.identity;
  }
  return io::Json::object();
}

void compare_inputs(RunDiff& diff) {
  const io::Json a = identity_of(diff.a), b = identity_of(diff.b);
  if (a.empty() || b.empty()) {
    diff.notes.push_back("base, data and tokenizer are not compared: a run has no checkpoint");
  } else {
    diff.inputs = differences(a, b);
  }
}

void compare_step(RunDiff& diff, int64_t step, const io::Json& a, const io::Json& b) {
  const bool hashed = a.contains("run_hash") && b.contains("run_hash"),
             same_kind = a.contains("event") == b.contains("event");
  for (const StepField& field : kStepFields) {
    const std::string name = field.name;
    if (name.ends_with("_hash") && !hashed) continue;
    if (name != "event" && !same_kind && (!a.contains(name) || !b.contains(name)))
      continue;  // an event lacks a step's fields
    const std::string value_a = value_text(a, name), value_b = value_text(b, name);
    if (value_a == value_b) continue;
    if (diff.parting == Parting::kNone) diff.parting = field.parting;
    diff.fields.push_back({name, value_a, value_b});
  }
  if (diff.parting != Parting::kNone) diff.step = step;
}

void compare_steps(RunDiff& diff, const Steps& a, const Steps& b) {
  bool hashed = true;
  for (const auto& [step, line] : a) {
    const auto other = b.find(step);
    if (other == b.end()) continue;
    ++diff.compared;
    if (diff.step > 0) continue;
    hashed = hashed && line.contains("run_hash") && other->second.contains("run_hash");
    compare_step(diff, step, line, other->second);
  }
  if (!hashed) diff.notes.push_back("a run has no hashes: its samples cannot be compared");
}

RunSide open_side(const std::string& path) {
  if (!io::path_exists(path + "/metrics.jsonl")) {
    refuse(ErrorKind::kInput, "not the output directory of a run", path, "no metrics.jsonl",
           "a folder that lft train wrote", "name the output_dir of a run");
  }
  return {.path = path, .run_id = {}, .last_step = 0};
}

}  // namespace

RunDiff diff_runs(const std::string& a, const std::string& b) {
  RunDiff diff;
  diff.a = open_side(a);
  diff.b = open_side(b);
  const Steps steps_a = read_steps(diff.a), steps_b = read_steps(diff.b);
  compare_recipes(diff);
  compare_inputs(diff);
  compare_environments(diff);
  compare_steps(diff, steps_a, steps_b);
  if (diff.compared == 0) {
    refuse(ErrorKind::kInput, "the runs have no step in common", a + " and " + b, {}, {},
           "train both over the same steps");
  }
  return diff;
}

}  // namespace lft::debug
