#include "src/recipe/recipe.h"

#include <algorithm>
#include <climits>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/io/files.h"
#include "src/io/run_folder.h"
#include "src/recipe/pair_words.h"
#include "src/recipe/recipe_fields.h"
#include "src/recipe/shipped.h"
#include "src/recipe/strict_reader.h"
#include "src/recipe/yaml_tree.h"

namespace lft::recipe {
namespace {

constexpr size_t kMaxProblems = 32;  // printed; the others are counted

void mark_as_set(YamlNode* node, const std::string& place) {
  node->line = INT_MAX;  // after the problems of the file
  node->place = place;
  for (YamlNode& item : node->items) mark_as_set(&item, place);
}

/// The map at `key` below `node`, created if it is missing. Null if the file has another type
/// there, which the reader reports.
YamlNode* descend(YamlNode* node, const std::string& key, const std::string& place) {
  for (YamlEntry& entry : node->entries) {
    if (entry.key != key) continue;
    if (entry.value.kind == YamlNode::Kind::kNull) entry.value.kind = YamlNode::Kind::kMap;
    return entry.value.kind == YamlNode::Kind::kMap ? &entry.value : nullptr;
  }
  YamlEntry& entry = node->entries.emplace_back(YamlEntry{key, INT_MAX, place, {}});
  mark_as_set(&entry.value, place);
  entry.value.kind = YamlNode::Kind::kMap;
  return &entry.value;
}

/// Sets one "key.path=value" in the tree. Returns the error, or nothing.
std::string apply_set(YamlNode* root, const std::string& set, const FieldNames& names) {
  const std::string place = "--set " + escape_text(set, 80);
  const size_t equals = set.find('=');
  if (equals == std::string::npos) return place + ": expected key=value";
  const std::string path = set.substr(0, equals);
  if (std::find(names.sections.begin(), names.sections.end(), path) != names.sections.end()) {
    return place + ": " + path + " is a section; set its fields one by one";
  }
  if (std::find(names.fields.begin(), names.fields.end(), path) == names.fields.end())
    return place + ": " + unknown_field(path, names);
  YamlNode value;
  try {
    value = parse_yaml(set.substr(equals + 1), place);
  } catch (const Error& e) {
    return place + ": " + e.what();
  }
  mark_as_set(&value, place);
  YamlNode* node = root;
  size_t start = 0;
  for (size_t dot = path.find('.'); dot != std::string::npos && node != nullptr;
       dot = path.find('.', start)) {
    node = descend(node, path.substr(start, dot - start), place);
    start = dot + 1;
  }
  if (node == nullptr) return "";
  const std::string key = path.substr(start);
  const auto same = std::find_if(node->entries.begin(), node->entries.end(),
                                 [&](const YamlEntry& entry) { return entry.key == key; });
  YamlEntry& entry = same != node->entries.end() ? *same : node->entries.emplace_back();
  entry = {key, INT_MAX, place, std::move(value)};
  return "";
}

bool contains(const std::vector<std::string>& list, const std::string& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

void check_targets(const Recipe& r, StrictReader* reader) {
  const std::vector<std::string> scopes = {"llm", "projector", "vision"};
  for (const std::string& target : r.lora.targets) {
    const size_t colon = target.find(':');
    const std::string scope = target.substr(0, std::min(colon, target.size()));
    if (colon == std::string::npos || colon + 1 == target.size() || !contains(scopes, scope)) {
      reader->problem_at("lora.targets", "contains " + quote_text(target, 60) +
                                             ", expected scope:pattern with a scope of " +
                                             join(scopes));
    } else if (contains(r.full, scope)) {
      reader->problem_at("lora.targets", "contains " + quote_text(target, 60) +
                                             ", but `full` trains " + scope +
                                             " whole: drop one of the two");
    }
  }
}

/// Checks that involve several fields.
void check_together(const Recipe& r, StrictReader* reader) {
  const bool all = contains(r.full, "all");
  if (all && r.full.size() > 1)
    reader->problem_at("full", "names all and other parts: all includes them");
  for (size_t i = 0; i < r.full.size(); ++i) {
    if (std::count(r.full.begin(), r.full.begin() + static_cast<int64_t>(i), r.full[i]) > 0)
      reader->problem_at("full", "names " + r.full[i] + " twice");
  }
  if (r.optim.init_moments && r.lora.init_from.empty())
    reader->problem_at("optim.init_moments", "needs a checkpoint in lora.init_from");
  if (r.full.empty() && r.lora.targets.empty())
    reader->problem_at("lora.targets",
                       "is empty: name layers to adapt, or parts to train in `full`");
  if (!all) check_targets(r, reader);
  if (r.data.eval_share > 0 && !r.data.eval.empty())
    reader->problem_at("data.eval_share", "holds out rows although data.eval names them: drop one");
  if (r.train.eval_every_steps > 0 && r.data.eval.empty() && r.data.eval_share == 0)
    reader->problem_at("train.eval_every_steps", "needs data.eval or data.eval_share");
  const int64_t in_a_step = r.train.batch_size * r.train.grad_accum;
  if (r.train.global_batch > 0 && r.train.grad_accum > 0 && in_a_step != r.train.global_batch) {
    reader->problem_at("train.global_batch",
                       "is not train.batch_size * train.grad_accum, " + std::to_string(in_a_step) +
                           ": drop one of the two, or set train.grad_accum: auto");
  }
  if (r.train.global_batch > 0 && r.train.global_batch < r.train.batch_size) {
    reader->problem_at("train.global_batch",
                       "is below train.batch_size, " + std::to_string(r.train.batch_size));
  }
  if (r.optim.schedule == ScheduleKind::kConstant && r.optim.min_lr_ratio > 0)
    reader->problem_at("optim.min_lr_ratio", "has no effect with optim.schedule: constant");
  if (r.optim.schedule == ScheduleKind::kWsd && r.optim.warmup_ratio + r.optim.decay_ratio > 1)
    reader->problem_at("optim.decay_ratio", "and optim.warmup_ratio are more than all steps");
  if (r.train.keep_best != KeepBest::kNone && r.train.eval_every_steps == 0)
    reader->problem_at("train.keep_best", "needs train.eval_every_steps");
  const bool of_rows = learns_from_labels(r), of_pairs = learns_from_pairs(r),
             by_loss =
                 r.train.keep_best == KeepBest::kNone || r.train.keep_best == KeepBest::kEvalLoss;
  if (r.train.keep_best == KeepBest::kRewardAccuracy && !of_pairs)
    reader->problem_at("train.keep_best", "reward_accuracy needs an objective of pairs, as dpo");
  if (of_rows && !by_loss && r.train.keep_best != KeepBest::kRewardAccuracy)
    reader->problem_at("train.keep_best", "evaluations of kto generate no answers: use eval_loss");
  if (of_rows && r.train.batch_size * r.train.grad_accum == 1)
    reader->problem_at("train.batch_size",
                       "is 1 without train.grad_accum: kto compares each row with the next one of "
                       "its step");
  if (of_pairs && !by_loss && r.train.keep_best != KeepBest::kRewardAccuracy)
    reader->problem_at(
        "train.keep_best",
        "evaluations of pairs generate no answers: use reward_accuracy or eval_loss");
  if (r.train.patience > 0 && r.train.keep_best == KeepBest::kNone)
    reader->problem_at("train.patience", "needs train.keep_best");
  if (r.train.activation_offload && r.train.activation_checkpointing == Checkpointing::kNone) {
    reader->problem_at("train.activation_offload",
                       "keeps the inputs of recomputed blocks: needs "
                       "train.activation_checkpointing other than none");
  }
}

}  // namespace

std::string TrainData::text() const {
  if (list.empty()) return path;
  std::vector<std::string> paths;
  for (const Source& source : list) paths.push_back(source.path);
  return join(paths);
}

Recipe as_asked(Recipe recipe) {
  Recipe::Train& train = recipe.train;
  if (train.batch_size * train.grad_accum < train.global_batch) train.grad_accum = 0;
  return recipe;
}

Recipe parse_recipe(const std::string& text, const std::string& where,
                    const std::vector<std::string>& sets) {
  YamlNode root = parse_yaml(text, where);
  if (root.kind == YamlNode::Kind::kNull) root.kind = YamlNode::Kind::kMap;
  const FieldNames names = field_names();
  std::vector<std::string> set_problems;
  if (root.kind == YamlNode::Kind::kMap) {
    for (const std::string& set : sets) set_problems.push_back(apply_set(&root, set, names));
    std::erase(set_problems, "");
  }
  Recipe recipe;
  StrictReader reader(root);
  visit(reader, recipe);
  check_together(recipe, &reader);
  std::vector<std::string> problems = reader.finish();
  problems.insert(problems.end(), set_problems.begin(), set_problems.end());
  if (problems.empty()) return recipe;
  const std::string count =
      std::to_string(problems.size()) + (problems.size() == 1 ? " problem" : " problems");
  refuse(ErrorKind::kUsage, "the recipe has " + count + "\n" + join(problems, "\n", kMaxProblems),
         where, {}, {}, "lft recipe fields lists every field with its default and range");
}

namespace {

/// Replaces a run's folder by the model or adapter that the run wrote there.
void resolve_run_folder(std::string* path, const std::string& meant, const char* field) {
  if (meant == *path) return;
  notice(std::string(field) + ": using " + meant + " of the run " + *path);
  *path = meant;
}

/// Paths in a bundled recipe are relative to the recipes folder, for any working directory.
void resolve_bundled_paths(Recipe* recipe) {
  Recipe::Data& data = recipe->data;
  std::vector<std::string*> paths = {&recipe->model.path, &data.train.path, &data.eval,
                                     &data.image_root};
  for (Source& source : data.train.list)
    paths.insert(paths.end(), {&source.path, &source.image_root});
  for (std::string* path : paths) *path = resolve_bundled_path(*path);
}

/// The advice for a recipe that cannot be read.
std::string next_for_absent(const std::string& path) {
  const std::vector<std::string> near =
      io::path_exists(path) ? std::vector<std::string>() : closest_names(path, shipped_names(), 1);
  if (!near.empty()) return "did you mean " + near[0] + "? lft recipe ls names the bundled recipes";
  return "lft recipe ls names the recipes that come with lft, lft recipe cp NAME PATH copies one";
}

}  // namespace

Recipe read_recipe(const std::string& path, const std::vector<std::string>& sets) {
  std::string text;
  try {
    text = io::read_file(recipe_file(path), 1 << 20);
  } catch (const Error& e) {
    throw Error(ErrorKind::kUsage, advised(e, next_for_absent(path)).info());
  }
  Recipe recipe = parse_recipe(text, path, sets);
  resolve_bundled_paths(&recipe);
  resolve_run_folder(&recipe.model.path, io::model_folder(recipe.model.path), "model.path");
  resolve_run_folder(&recipe.lora.init_from, io::adapter_folder(recipe.lora.init_from),
                     "lora.init_from");
  return recipe;
}

}  // namespace lft::recipe
