#include "src/train/run/shared_run.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <map>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/log.h"
#include "src/base/signals.h"
#include "src/base/sum_tree.h"
#include "src/data/held_out.h"
#include "src/dist/shard_memory.h"
#include "src/train/explain/autograd_errors.h"
#include "src/train/machine/device.h"
#include "src/train/memory/memory_plan.h"
#include "src/train/step/gradient_tree.h"

namespace lft::train {
namespace {

/// The time in which all processes have to join.
constexpr std::chrono::seconds kPatience{300};

/// Converts an exception to the error that the run ends with.
Error block_of(const std::exception& exception) {
  if (const auto* error = dynamic_cast<const Error*>(&exception)) return *error;
  if (const auto* torch = dynamic_cast<const c10::Error*>(&exception)) {
    if (!is_out_of_memory(exception)) return explain_torch_error(*torch);
    return {ErrorKind::kResource, {"out of memory", {}, torch->what_without_backtrace(), {}, {}}};
  }
  const ErrorKind kind = is_out_of_memory(exception) ? ErrorKind::kResource : ErrorKind::kInternal;
  return {kind, exception.what()};
}

/// Rejects processes that differ in recipe or program.
void require_one_recipe(dist::Ranks& ranks, const recipe::Recipe& recipe) {
  const std::string own =
      lft_version() + " " + torch_version() + "\n" + recipe::dump_recipe(recipe);
  const std::vector<std::string> all = ranks.exchange(own);
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all.front()) continue;
    const auto differs = std::ranges::mismatch(all[rank], all.front());
    const size_t at = static_cast<size_t>(differs.in1 - all[rank].begin());
    const size_t begin = all[rank].rfind('\n', at == 0 ? 0 : at - 1) + 1;
    refuse(ErrorKind::kUsage, "the processes of the run do not read the same recipe",
           "rank " + std::to_string(rank),
           all[rank].substr(begin, all[rank].find('\n', at) - begin), "as rank 0 reads it",
           "start all with the same recipe, options and build of lft");
  }
}

io::Json bad_json(const std::optional<infer::NonFinite>& bad) {
  if (!bad) return nullptr;
  return {bad->module, bad->place.position, bad->place.image, bad->token, bad->answer};
}

std::optional<infer::NonFinite> bad_from(const io::Json& json) {
  if (json.is_null()) return std::nullopt;
  return infer::NonFinite{.module = json.at(0),
                          .place = {.position = json.at(1), .image = json.at(2)},
                          .token = json.at(3),
                          .answer = json.at(4)};
}

io::Json record_json(const infer::EvalRecord& record) {
  io::Json figures = io::Json::array();
  for (const double figure : record.figures) figures.push_back(bits_text(figure));
  return {record.index,         record.id,       record.question,   record.reference,
          record.answer,        record.answered, record.match,      bits_text(record.loss),
          record.supervised,    record.open,     record.references, bits_text(record.score),
          bad_json(record.bad), figures};
}

infer::EvalRecord record_from(const io::Json& json) {
  std::vector<double> figures;
  for (const io::Json& figure : json.at(13)) figures.push_back(bits_value(figure));
  return {.index = json.at(0),
          .id = json.at(1),
          .question = json.at(2),
          .reference = json.at(3),
          .answer = json.at(4),
          .answered = json.at(5),
          .match = json.at(6),
          .open = json.at(9),
          .references = json.at(10),
          .score = bits_value(json.at(11)),
          .loss = bits_value(json.at(7)),
          .supervised = json.at(8),
          .bad = bad_from(json.at(12)),
          .figures = std::move(figures)};
}

/// The rows of every ranks-th batch.
std::vector<int64_t> dealt(int64_t rows, int64_t batch, const dist::Ranks& ranks) {
  std::vector<int64_t> own;
  for (int64_t row = 0; row < rows; ++row) {
    if (row / batch % ranks.size() == ranks.rank()) own.push_back(row);
  }
  return own;
}

/// A part of an evaluation, with the row indices of the whole.
io::Json part_json(const infer::EvalResult& part, const std::vector<int64_t>& rows) {
  io::Json records = io::Json::array(), skipped = io::Json::array();
  for (infer::EvalRecord record : part.records) {
    record.index = rows[static_cast<size_t>(record.index)];
    records.push_back(record_json(record));
  }
  for (size_t i = 0; i < part.skipped.size(); ++i)
    skipped.push_back({rows[static_cast<size_t>(part.skipped_indices[i])], part.skipped[i]});
  return {{"records", records}, {"skipped", skipped}, {"stopped", part.stopped}};
}

void take_part(infer::EvalResult& whole, std::map<int64_t, std::string>& skipped,
               const io::Json& part) {
  whole.stopped |= part.at("stopped").get<bool>();
  for (const io::Json& record : part.at("records")) whole.records.push_back(record_from(record));
  for (const io::Json& row : part.at("skipped"))
    skipped[row.at(0).get<int64_t>()] = row.at(1).get<std::string>();
}

using Tensors = std::map<std::string, at::Tensor>;

io::Json shapes_json(const Tensors& tensors) {
  io::Json json = io::Json::array();
  for (const auto& [name, tensor] : tensors)
    json.push_back({name, static_cast<int>(tensor.scalar_type()), tensor.sizes().vec()});
  return json;
}

void share_tensors(dist::Ranks& ranks, const io::Json& shapes, Tensors& tensors) {
  for (const io::Json& shape : shapes) {
    const auto name = shape.at(0).get<std::string>();
    if (!ranks.first()) {
      tensors[name] = at::empty(shape.at(2).get<std::vector<int64_t>>(),
                                static_cast<at::ScalarType>(shape.at(1).get<int>()));
    }
    ranks.broadcast(tensors.at(name).contiguous());
  }
}

/// Values for which every process has a micro-batch, if possible with the same number of samples
/// per step.
std::string advice_for_ranks(const recipe::Recipe& recipe, int64_t ranks) {
  const int64_t batch_size = recipe.train.batch_size, grad_accum = recipe.train.grad_accum;
  const int64_t step = batch_size * grad_accum;
  const std::string accum = "set train.grad_accum to " + std::to_string(ranks);
  if (step < ranks)
    return "start at most " + std::to_string(step) + (step == 1 ? " process" : " processes") +
           ", as a step has " + recipe::samples_text(recipe, step) + "; or " + accum +
           ", which makes it " + std::to_string(ranks * batch_size);
  const int64_t same = step / ranks;
  return accum + " and train.batch_size to " + std::to_string(same) + ", a step of " +
         recipe::samples_text(recipe, same * ranks) + "; or start fewer processes";
}

/// kUsage with the value to set if a process would never have a micro-batch; a notice if sums are
/// added in another order than in one process.
void check_shares(RunInputs& inputs) {
  if (inputs.ranks == 1) return;
  const recipe::Recipe::Train& train = inputs.recipe.train;
  const bool packed = train.max_tokens_per_step > 0;
  int64_t most = train.grad_accum;
  if (packed) most = worst_micro_batch(inputs, sample_lengths(inputs.data)).in_step;
  const int64_t rows = std::min(inputs.rows, train.batch_size * train.grad_accum);
  if (!packed) most = std::min(most, (rows + train.batch_size - 1) / train.batch_size);
  if (most < inputs.ranks) {
    const std::string needed = std::to_string(inputs.ranks);
    refuse(ErrorKind::kUsage,
           "a step has fewer micro-batches than the run has processes: some would never work",
           packed ? "train.max_tokens_per_step" : "train.grad_accum",
           std::to_string(most) + (most == 1 ? " micro-batch" : " micro-batches") + " a step",
           "at least " + needed + ", one for each process",
           packed ? "set train.grad_accum to " +
                        std::to_string((train.grad_accum * inputs.ranks + most - 1) / most) +
                        ", or lower train.max_tokens_per_step, or start fewer processes"
                  : advice_for_ranks(inputs.recipe, inputs.ranks));
  }
  if (const double bytes = 4.0 * static_cast<double>(inputs.files.trainable_parameters);
      !adds_by_tree(bytes, inputs.device)) {
    inputs.notices.push_back("gradients of " + format_bytes(bytes) +
                             " are added as they come: the same up to rounding for every number of "
                             "processes");
  } else if (!is_power_of_two(inputs.ranks)) {
    inputs.notices.push_back(
        std::to_string(inputs.ranks) +
        " processes add gradients in another order than one does: the same up to rounding; 2, 4, 8 "
        "give the same bits");
  }
}

/// Applies train.shard: base over the processes of this machine.
void share_base(RunInputs& inputs, dist::Ranks& ranks) {
  if (inputs.recipe.train.shard == recipe::Shard::kNone) return;
  inputs.shards = dist::share_memory(ranks, inputs.device);
  if (!inputs.shards) {
    inputs.notices.push_back(
        "train.shard: base: no other process of the run is on this machine: this one keeps the "
        "whole base, as with none");
    return;
  }
  inputs.shard_group_size = inputs.shards->holders();
  if (const std::string graphs = graphs_left_out(inputs.recipe, inputs); !graphs.empty())
    inputs.notices.push_back(graphs);
}

}  // namespace

int train_as(const dist::Place& place, const std::function<recipe::Recipe()>& read,
             TrainOptions options) {
  be_quiet(place.rank != 0);
  take_local_gpu(place.local_rank);
  dist::Ranks ranks(place, kPatience);
  options.ranks = &ranks;
  try {
    const recipe::Recipe recipe = read();
    require_one_recipe(ranks, recipe);
    ranks.set_timeout(std::chrono::seconds(recipe.dist.timeout_s));
    const int own = train(recipe, options);
    ranks.await_first();  // which generates answers and writes the report
    const int code = std::stoi(ranks.from_first(std::to_string(own)));
    ranks.leave();
    return code;
  } catch (const OutOfMemoryElsewhere& elsewhere) {
    ranks.exchange("");  // throws the error of the process that ran out of memory
    throw block_of(elsewhere);
  } catch (const Stopped& stopped) {
    const int signal = ranks.stopped(stopped.signal);
    ranks.leave();
    return stop_exit_code(signal);
  } catch (const std::exception& exception) {
    throw ranks.failed(block_of(exception));
  }
}

int agreed_signal(dist::Ranks& ranks) {
  for (const std::string& signal : ranks.exchange(std::to_string(requested_signal()))) {
    if (signal != "0") return std::stoi(signal);
  }
  return 0;
}

RunInputs open_shared_inputs(const recipe::Recipe& recipe, const TrainOptions& options) {
  dist::Ranks& ranks = *options.ranks;
  RunInputs inputs = open_inputs(recipe, options.resume, ranks.first());
  if (recipe.train.max_tokens_per_step > 0) sample_lengths(inputs.data);
  share_base(inputs, ranks);
  inputs.rank = ranks.rank();
  inputs.ranks = ranks.size();
  ranks.open_data_group(inputs.device);
  check_shares(inputs);
  return inputs;
}

void share_checkpoint(dist::Ranks& ranks, std::optional<checkpoint::Checkpoint>& checkpoint) {
  if (ranks.alone()) return;
  io::Json head;
  if (checkpoint) {
    head = {{"step", checkpoint->step},
            {"run_id", checkpoint->run_id},
            {"state", checkpoint->state},
            {"identity", checkpoint->identity},
            {"environment", checkpoint->environment},
            {"recipe", checkpoint->recipe},
            {"trainables", shapes_json(checkpoint->trainables)},
            {"moments", shapes_json(checkpoint->moments)}};
  }
  head = io::Json::parse(ranks.from_first(io::json_text(head)));
  if (head.is_null()) return;
  if (!checkpoint) {
    checkpoint.emplace();
    checkpoint->step = head.at("step");
    checkpoint->run_id = head.at("run_id");
    checkpoint->state = head.at("state");
    checkpoint->identity = head.at("identity");
    checkpoint->environment = head.at("environment");
    checkpoint->recipe = head.at("recipe");
  }
  share_tensors(ranks, head.at("trainables"), checkpoint->trainables);
  share_tensors(ranks, head.at("moments"), checkpoint->moments);
}

void share_trainables(dist::Ranks& ranks, Run& run) {
  if (ranks.alone()) return;
  ranks.exchange("");  // rank 0 has them
  const at::NoGradGuard no_grad;
  for (const Slot& slot : run.optimizer.slots()) ranks.broadcast(slot.param.tensor.detach());
  for (const Slot& slot : run.optimizer.slots())
    slot.param.tensor.unsafeGetTensorImpl()->bump_version();
  run.optimizer.refresh_copies(run.state.compute);
}

infer::EvalResult evaluate_shared(dist::Ranks& ranks, Run& run, const data::Dataset& rows,
                                  const infer::EvalOptions& options) {
  const RunData& data = run.data;
  if (ranks.alone())
    return infer::evaluate(run.model.model, rows, *data.tokenizer, data.encode, options);
  const std::vector<int64_t> own = dealt(rows.size(), infer::rows_together(options), ranks);
  infer::EvalResult part;
  if (!own.empty()) {
    const std::unique_ptr<data::Dataset> dealt_rows = data::select_rows(rows, own);
    part = infer::evaluate(run.model.model, *dealt_rows, *data.tokenizer, data.encode, options);
  }
  infer::EvalResult whole;
  std::map<int64_t, std::string> skipped;
  for (const std::string& text : ranks.exchange(io::json_text(part_json(part, own))))
    take_part(whole, skipped, io::Json::parse(text));
  std::ranges::sort(whole.records, {}, &infer::EvalRecord::index);
  for (const auto& [row, reason] : skipped) {
    whole.skipped_indices.push_back(row);
    whole.skipped.push_back(reason);
  }
  sum_up(whole, options.metric, options.preference);
  return whole;
}

data::StepSamples read_step(const Run& run, int64_t step) {
  data::LoaderOptions options = loader_options(run, run.data.lengths);
  options.layout = std::make_shared<data::BatchLayout>(batch_layout(run));
  return data::Loader(*run.data.train, std::move(options), step - 1).next();
}

}  // namespace lft::train
