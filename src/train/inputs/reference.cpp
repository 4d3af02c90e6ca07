#include "src/train/inputs/reference.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <set>
#include <span>

#include "src/base/hash.h"
#include "src/base/log.h"
#include "src/data/loader.h"
#include "src/data/prepared.h"
#include "src/data/store/column_file.h"
#include "src/infer/reference_sums.h"
#include "src/io/files.h"
#include "src/train/inputs/run_objective.h"

namespace lft::train {
namespace {

constexpr char kKind[] = "references 1";

/// Everything that determines the references of a data set.
std::string reference_key(const RunInputs& inputs, const RunModel& model,
                          const data::Dataset& dataset, int64_t group) {
  Sha256 trained;
  for (const lora::Trainable& each : model.trainables) {
    const at::Tensor values = each.tensor.detach().to(at::kCPU).contiguous();
    trained.update(values.const_data_ptr(), values.nbytes());
  }
  io::Json key = data::sample_rules(inputs.data.encode);
  key["rows"] = dataset.hash();
  key["base"] = model.base_digest;
  key["trained"] = trained.hex();
  key["compute"] = static_cast<int>(inputs.precision.compute);
  key["stored"] = {static_cast<int>(inputs.base_dtype), static_cast<int>(inputs.storage)};
  key["device"] = inputs.device.str();
  if (group > 0) key["group"] = group;
  return sha256(key.dump());
}

std::vector<uint64_t> bits_of(const std::vector<double>& sums) {
  std::vector<uint64_t> bits;
  for (const double sum : sums) bits.push_back(std::bit_cast<uint64_t>(sum));
  return bits;
}

std::vector<double> sums_of(std::span<const uint64_t> bits) {
  std::vector<double> sums;
  for (const uint64_t each : bits) sums.push_back(std::bit_cast<double>(each));
  return sums;
}

std::string text_of(const std::vector<double>& sums) { return io::Json(bits_of(sums)).dump(); }

std::vector<double> sums_of_text(const std::string& text) {
  return sums_of(io::Json::parse(text).get<std::vector<uint64_t>>());
}

std::vector<double> load(const std::string& path, const std::string& key, int64_t count) {
  if (!io::path_exists(path)) return {};
  try {
    const data::Columns columns = data::Columns::load(path);
    if (columns.facts.at("kind") != kKind || columns.facts.at("key") != key) return {};
    std::vector<double> sums = sums_of(columns.get<uint64_t>("sums"));
    if (std::ssize(sums) == count) return sums;
  } catch (const std::exception& error) {
    notice(path + " cannot be used (" + error.what() + "): it is made again");
  }
  return {};
}

void save(const std::string& path, const std::string& key, const std::vector<double>& sums) {
  data::Columns columns;
  columns.facts = {{"kind", kKind}, {"key", key}};
  columns.set("sums", bits_of(sums));
  try {
    columns.save(path);
  } catch (const Error& error) {
    warning("the reference could not be kept, the next start computes it again: " +
            error.info().what + " (" + error.info().found + ")");
  }
}

void keep_initial(RunModel& model) {
  for (const lora::Trainable& each : model.trainables)
    model.initial.push_back(each.tensor.detach().clone());
}

/// `group` as in infer::ReferenceSumOptions.
void find(const RunInputs& inputs, RunModel& model, dist::Ranks& ranks, data::Dataset& rows,
          const std::string& name, int64_t group) {
  const std::string key = reference_key(inputs, model, rows, group),
                    path = inputs.recipe.output_dir + "/index/" + name + ".reference";
  const int64_t each = (inputs.data.encode.pairs ? 2 : 1) + (group > 0 ? 1 : 0);
  std::vector<double> sums =
      ranks.first() ? load(path, key, each * rows.size()) : std::vector<double>();
  if (ranks.from_first(sums.empty() ? "no" : "yes") == "no") {
    const int64_t together = std::max<int64_t>(1, group);
    sums = infer::reference_sums(
        model.model, rows, inputs.data.encode,
        {.compute = inputs.precision.compute,
         .workers = inputs.recipe.data.workers,
         .phase = "reference of " + name,
         .wants = [&](int64_t row) { return row / together % inputs.ranks == inputs.rank; },
         .group = group});
    std::vector<double> all(sums.size(), 0);
    for (const std::string& text : ranks.exchange(text_of(sums))) {
      const std::vector<double> part = sums_of_text(text);
      for (size_t i = 0; i < all.size(); ++i)
        if (part[i] != 0) all[i] = part[i];  // NaN, too
    }
    sums = std::move(all);
    if (ranks.first()) {
      io::make_dirs(inputs.recipe.output_dir + "/index");
      save(path, key, sums);
    }
  } else {
    sums = sums_of_text(ranks.from_first(text_of(sums)));
  }
  rows.set_references(std::move(sums));
}

}  // namespace

void find_references(RunInputs& inputs, RunModel& model, dist::Ranks& ranks) {
  const auto objective = make_objective(inputs.recipe);
  if (!objective->uses_reference()) return;
  if (objective->uses_kl()) keep_initial(model);
  find(inputs, model, ranks, *inputs.data.train, "train", 0);
  if (inputs.data.eval)
    find(inputs, model, ranks, *inputs.data.eval, "eval",
         objective->uses_kl() ? rows_of_step(inputs.recipe) : 0);
}

void find_step_references(RunInputs& inputs, RunModel& model, int64_t steps, int64_t first) {
  const auto objective = make_objective(inputs.recipe);
  if (!objective->uses_reference()) return;
  if (objective->uses_kl()) keep_initial(model);
  const std::unique_ptr<data::Loader> loader = start_loader(inputs, first);
  std::set<int64_t> wanted;
  for (int64_t step = 0; step < steps; ++step) {
    for (const std::vector<int64_t>& micro : loader->next().indices)
      wanted.insert(micro.begin(), micro.end());
  }
  data::Dataset& rows = *inputs.data.train;
  rows.set_references(
      infer::reference_sums(model.model, rows, inputs.data.encode,
                            {.compute = inputs.precision.compute,
                             .workers = inputs.recipe.data.workers,
                             .phase = "reference",
                             .wants = [&](int64_t row) { return wanted.contains(row); }}));
}

}  // namespace lft::train
