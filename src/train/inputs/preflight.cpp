#include "src/train/inputs/preflight.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <mutex>
#include <numeric>
#include <set>

#include "src/base/errors.h"
#include "src/base/signals.h"
#include "src/base/text.h"
#include "src/io/decode/image_decode.h"
#include "src/io/files.h"
#include "src/recipe/pair_words.h"
#include "src/train/optim/schedule.h"

namespace lft::train {
namespace {

// Steps at the full learning rate. LoRA's B starts at 0 and changes by at most about the rate in
// each.
constexpr double kFewFullSteps = 8;

std::string share_text(const RunInputs& inputs, int64_t count, int64_t size) {
  return std::to_string(count) + " of " + recipe::samples_text(inputs.recipe, size);
}

/// For example "rows.json[3] (id "b3"): cannot open a file (No such file or directory)".
std::string reason_of(const ErrorInfo& info) {
  return info.where + ": " + info.what + (info.found.empty() ? "" : " (" + info.found + ")");
}

/// For one data set, under its name in the recipe, with the number of samples checked.
void check_bad(const RunInputs& inputs, int64_t looked_at, const std::string& field,
               const data::BadSamples& bad, std::vector<std::string>& lines) {
  if (bad.count == 0) return;
  const std::string count = share_text(inputs, bad.count, looked_at);
  if (!inputs.data.encode.skip_bad) {
    ErrorInfo info = bad.error->info();
    if (bad.count > 1)
      info.found +=
          (info.found.empty() ? "" : "; ") + count + " of " + field + " are bad, this is the first";
    throw Error(ErrorKind::kInput, std::move(info));
  }
  const std::string first = reason_of(bad.error->info());
  data::check_bad_count(inputs.data.encode, bad.count, field, first);
  lines.push_back(field + ": " + count + " cannot be read and will be left out, first " + first);
}

/// Stride of a row order in which every prefix is spread over all rows.
int64_t spread_step(int64_t rows) {
  auto step = static_cast<int64_t>(0.618 * static_cast<double>(rows)) + 1;
  while (std::gcd(step, rows) != 1) ++step;
  return step;
}

/// Decodes images row by row in several threads until the time limit.
class ImageLook {
 public:
  ImageLook(const RunInputs& inputs, const data::Dataset& dataset, double seconds)
      : limits_(inputs.data.encode.image_limits),
        dataset_(dataset),
        step_(spread_step(dataset.size())),
        end_(Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                std::chrono::duration<double>(std::min(seconds, 1e6)))) {}

  /// Returns the number of rows checked. `bad`: rows that a run could not decode.
  int64_t look(int64_t workers, data::BadSamples& bad) {
    std::vector<std::future<void>> threads;
    for (int64_t i = 0; i < std::min(workers, dataset_.size()); ++i)
      threads.push_back(std::async(std::launch::async, [this] { work(); }));
    for (std::future<void>& thread : threads) thread.get();
    bad = bad_;
    return looked_at_;
  }

 private:
  using Clock = std::chrono::steady_clock;

  void work() {
    for (int64_t i; (i = next_++) < dataset_.size();) {
      if (i > 0 && (Clock::now() >= end_ || requested_signal() != 0)) return;
      look_at(i * step_ % dataset_.size());
      ++looked_at_;
    }
  }

  void look_at(int64_t row) {
    try {
      const std::vector<std::string> paths = dataset_.image_paths(row);
      for (size_t i = 0; i < paths.size(); ++i) {
        const io::FileBytes bytes = dataset_.image_bytes(row, i);
        if (bytes.empty()) return judge(row);
        io::check_image(bytes, paths[i], limits_);
      }
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInput) throw;
      judge(row);
    }
  }

  /// The error is the one a run would end with. Errors found by measuring are already reported.
  void judge(int64_t row) {
    bool measured = false;
    try {
      dataset_.length(row);
      measured = true;
      dataset_.get(row);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInput) throw;
      if (!measured) return;
      const std::lock_guard lock(mutex_);
      ++bad_.count;
      if (bad_.error && bad_.first < row) return;
      bad_.first = row;
      bad_.error.emplace(error);
    }
  }

  const io::ImageLimits& limits_;
  const data::Dataset& dataset_;
  const int64_t step_;
  const Clock::time_point end_;
  std::atomic<int64_t> next_{0}, looked_at_{0};
  std::mutex mutex_;
  data::BadSamples bad_;
};

void check_images_of(const RunInputs& inputs, const data::Dataset& dataset,
                     const std::string& field, double seconds, std::vector<std::string>& lines) {
  data::BadSamples bad;
  const int64_t looked_at = ImageLook(inputs, dataset, seconds).look(inputs.data.workers, bad);
  check_bad(inputs, looked_at, field, bad, lines);
  if (looked_at < dataset.size()) {
    lines.push_back(field + ": the images of " + share_text(inputs, looked_at, dataset.size()) +
                    " were decoded; lft validate decodes all of them");
  }
}

bool takes_part(const recipe::Recipe& recipe, const std::string& scope) {
  return std::ranges::any_of(
      recipe.full, [&](const std::string& part) { return part == "all" || part == scope; });
}

/// One of the groups of optimizer.h's param_groups: whether it contains adapters, and any
/// trainables.
struct Group {
  std::string scope, field;  // field: its own learning rate; empty if it uses the base rate
  double lr = 0;
  bool adapters = false, trained = false;
};
std::vector<Group> groups_of(const recipe::Recipe& recipe) {
  const recipe::Recipe::Optim& optim = recipe.optim;
  const auto rate = [&](double own) { return own < 0 ? optim.lr : own; };
  const auto field = [](double own, const char* name) { return own < 0 ? "optim.lr" : name; };
  std::vector<Group> groups = {
      {"llm", "optim.lr", optim.lr},
      {"projector", field(optim.projector_lr, "optim.projector_lr"), rate(optim.projector_lr)},
      {"vision", field(optim.vision_lr, "optim.vision_lr"), rate(optim.vision_lr)}};
  for (Group& group : groups) {
    group.trained = takes_part(recipe, group.scope);
    group.adapters =
        !group.trained && std::ranges::any_of(recipe.lora.targets, [&](const std::string& target) {
          return target.starts_with(group.scope + ":");
        });
    group.trained = group.trained || group.adapters;
  }
  return groups;
}

/// Counts rows of one data set without supervised tokens and rows truncated by the limit, with the
/// consequence of each.
void count_supervision(const RunInputs& inputs, const std::vector<data::SampleLength>& lengths,
                       const std::string& field, const std::string& none, const std::string& lost,
                       std::vector<std::string>& lines) {
  const auto unlabelled = std::ranges::count_if(lengths, [](const data::SampleLength& each) {
    return each.tokens > 0 && each.supervised == 0;
  });
  if (unlabelled > 0) {
    lines.push_back(field + ": " + share_text(inputs, unlabelled, std::ssize(lengths)) +
                    " have no supervised token: " + none);
  }
  const auto cut =
      std::ranges::count_if(lengths, [](const data::SampleLength& each) { return each.cut > 0; });
  if (cut > 0) {
    lines.push_back(
        field + ": " + share_text(inputs, cut, std::ssize(lengths)) +
        " lose supervised tokens to data.max_tokens = " + std::to_string(inputs.max_tokens) +
        ", the end of their last reply among them: " + lost + " (lft validate names them)");
  }
}

bool has_supervision(const data::Dataset& rows, int64_t row, bool skip_bad) {
  try {
    return rows.length(row).supervised > 0;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput || !skip_bad) throw;
    return false;
  }
}

}  // namespace

std::vector<std::string> check_samples(RunInputs& inputs) {
  std::vector<std::string> lines;
  const std::vector<data::SampleLength>& lengths = sample_lengths(inputs.data);
  check_bad(inputs, inputs.data.train->size(), "data.train", inputs.data.bad, lines);
  count_supervision(inputs, lengths, "data.train", "nothing is learnt from them",
                    "a model learns from them not to stop", lines);
  if (!inputs.data.eval) return lines;
  data::BadSamples bad;
  const std::vector<data::SampleLength> held_out =
      data::measure_lengths(*inputs.data.eval, inputs.recipe.data.workers, &bad);
  if (inputs.recipe.train.eval_every_steps > 0) {
    inputs.evaluated_rows = std::ssize(held_out);
    for (const data::SampleLength& row : held_out) inputs.evaluated.raise_to(row);
  }
  check_bad(inputs, inputs.data.eval->size(), "data.eval", bad, lines);
  count_supervision(inputs, held_out, "data.eval", "no evaluation counts them",
                    "the evaluations do not see it", lines);
  return lines;
}

void check_held_out(const RunInputs& inputs) {
  if (!inputs.data.eval) return;
  const data::Dataset& rows = *inputs.data.eval;
  for (int64_t row = 0; row < rows.size(); ++row) {
    if (has_supervision(rows, row, inputs.data.encode.skip_bad)) return;
  }
  const recipe::Recipe& recipe = inputs.recipe;
  refuse(ErrorKind::kInput,
         "no held-out row has a supervised token, so that there is nothing to evaluate",
         recipe.data.eval.empty() ? "data.eval_share of " + recipe.data.train.text()
                                  : recipe.data.eval,
         std::to_string(rows.size()) + " rows",
         "an answer within data.max_tokens = " + std::to_string(inputs.max_tokens) +
             " under data.template = " + inputs.data.encode.chat->name(),
         "usual causes: data.max_tokens cuts every answer off (raise it, or shorten the prompts), "
         "or the answers are empty or have \"loss\": false; without data.eval the run does not "
         "evaluate");
}

std::vector<std::string> check_images(const RunInputs& inputs, double seconds) {
  std::vector<std::string> lines;
  const double each = inputs.data.eval ? seconds / 2 : seconds;
  check_images_of(inputs, *inputs.data.train, "data.train", each, lines);
  if (inputs.data.eval) check_images_of(inputs, *inputs.data.eval, "data.eval", each, lines);
  return lines;
}

void check_bad_count(const data::EncodeOptions& encode, const std::vector<std::string>& skipped,
                     const std::string& rows) {
  std::set<std::string> different;
  const std::string* first = nullptr;
  for (const std::string& each : skipped) {
    if (each.starts_with("data.eval: ")) continue;
    if (first == nullptr) first = &each;
    different.insert(each);
  }
  if (first != nullptr)
    data::check_bad_count(encode, static_cast<int64_t>(different.size()), rows, *first);
}

void check_learning_rates(const RunInputs& inputs) {
  const recipe::Recipe::Optim& optim = inputs.recipe.optim;
  const Schedule schedule = Schedule::make(optim, inputs.total_steps);
  bool scheduled = false;
  for (int64_t step = 0; step < inputs.total_steps && !scheduled; ++step)
    scheduled = schedule.factor(step) > 0;
  if (!scheduled) {
    refuse(ErrorKind::kUsage, "the learning rate of every step is 0: nothing would move",
           "optim.warmup_ratio and the number of steps",
           std::to_string(inputs.total_steps) + " in all, " + std::to_string(schedule.warmup) +
               " of warm-up from 0",
           "a step after the warm-up", "raise train.max_steps, or set optim.warmup_ratio: 0");
  }
  const std::vector<Group> groups = groups_of(inputs.recipe);
  const bool some_move =
      std::ranges::any_of(groups, [](const Group& group) { return group.trained && group.lr > 0; });
  for (const Group& group : groups) {
    if (group.lr > 0 || !(group.adapters || (group.trained && !some_move))) continue;
    refuse(ErrorKind::kUsage, "a learning rate of 0: what it trains would never move", group.field,
           "0", "above 0", "raise it, or take that part out of lora.targets and full");
  }
}

std::string judge_steps(const RunInputs& inputs) {
  const recipe::Recipe& recipe = inputs.recipe;
  const Schedule schedule = Schedule::make(recipe.optim, inputs.total_steps);
  double full_steps = 0;
  for (int64_t step = 0; step < inputs.total_steps && full_steps < kFewFullSteps; ++step)
    full_steps += schedule.factor(step);
  if (full_steps >= kFewFullSteps) return "";
  const int64_t a_step = recipe.train.batch_size * recipe.train.grad_accum;
  std::vector<std::string> ways;
  ways.push_back(recipe.train.max_steps > 0 ? "raise train.max_steps" : "raise train.epochs");
  if (recipe.train.grad_accum > 1) ways.push_back("lower train.grad_accum");
  if (recipe.train.batch_size > 1) ways.push_back("lower train.batch_size");
  if (schedule.warmup > 1) ways.push_back("lower optim.warmup_ratio");
  return "this run will learn very little: " + std::to_string(inputs.total_steps) + " steps of " +
         recipe::samples_text(recipe, a_step) + " over " + recipe::rows_text(recipe, inputs.rows) +
         ", " + std::to_string(schedule.warmup) + " of them warm-up from 0, equal " +
         format_number(full_steps, "%.3g") + " steps at the full learning rate; " +
         join(ways, ", or ") + " until they equal about " + format_number(kFewFullSteps, "%.0f") +
         " or more";
}

}  // namespace lft::train
