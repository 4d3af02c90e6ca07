#include "src/debug/repeat/determinism.h"

#include <algorithm>
#include <filesystem>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/log.h"
#include "src/base/signals.h"
#include "src/debug/trial/child_process.h"
#include "src/io/files.h"

namespace lft::debug {
namespace {

bool same_tensor(const TraceRecord& a, const TraceRecord& b) {
  return a.step == b.step && a.micro_batch == b.micro_batch && a.phase == b.phase &&
         a.module == b.module && a.tensor == b.tensor && a.shape == b.shape;
}

/// Counts the step's tensors that differ, as far as both runs hashed the same ones.
void count_step(const Trace& a, const Trace& b, size_t from, TraceDifference& difference) {
  const size_t size = std::min(a.records.size(), b.records.size());
  size_t begin = from;
  while (begin > 0 && a.records[begin - 1].step == difference.step) --begin;
  for (size_t i = begin;
       i < size && a.records[i].step == difference.step && same_tensor(a.records[i], b.records[i]);
       ++i) {
    ++difference.compared;
    if (a.records[i].hash != b.records[i].hash) ++difference.differ;
  }
}

std::string tensor_name(const TraceRecord& r) {
  std::string text = r.phase == "input" || r.phase == "output"
                         ? r.phase + " " + r.tensor + " of " + r.module
                     : r.phase == "loss" ? "the loss"
                                         : r.phase + " " + r.tensor;
  return text + ", " + r.shape;
}

std::string place_of(const TraceRecord& r) {
  if (r.step == 0) return "before step 1";
  return "step " + std::to_string(r.step) +
         (r.micro_batch < 0 ? "" : ", micro-batch " + std::to_string(r.micro_batch));
}

std::string meaning(const TraceRecord& r) {
  if (r.step == 0) return "the weights a run starts from are not the same";
  if (r.phase == "batch")
    return "the samples are not the same: order, decoding or tokenising of the data";
  if (r.phase == "input")
    return "everything before it was the same: what runs between the module before and this one";
  if (r.phase == "output")
    return "its inputs and all before them were the same: this module's own forward pass";
  if (r.phase == "loss") return "every module's output was the same: the sum of the loss";
  if (r.phase == "gradient")
    return "the whole forward pass was the same: the backward pass, at this tensor or between it "
           "and the loss";
  return "all gradients were the same: the optimizer";
}

std::string advice(const recipe::Recipe& recipe, bool workers) {
  if (workers)
    return "the number of data workers must not matter; until this is found train with "
           "data.workers: " +
           std::to_string(recipe.data.workers);
  if (!recipe.train.deterministic)
    return "train.deterministic is false: set it to true and run this again";
  return "run this again with data.workers: 1, then with OMP_NUM_THREADS=1: what makes it go away "
         "names the cause";
}

[[noreturn]] void report(const TraceDifference& difference, const recipe::Recipe& recipe,
                         const std::string& runs, const Trace& a, const Trace& b, bool workers) {
  const TraceRecord& first = difference.a ? *difference.a : *difference.b;
  ErrorInfo info;
  info.what = runs + " part";
  info.where = place_of(first) + ": " + tensor_name(first);
  if (!difference.a || !difference.b) {
    const Trace& shorter = difference.a ? b : a;
    info.found =
        "one of them ended before it" + (shorter.ended.empty() ? "" : " (" + shorter.ended + ")");
  } else if (!difference.same_work) {
    info.found = "the other one went on with " + tensor_name(*difference.b);
  } else {
    info.found = "hashes " + first.hash + " and " + difference.b->hash + "; " + meaning(first) +
                 "; " + std::to_string(difference.differ) + " of " +
                 std::to_string(difference.compared) + " tensors of this step differ";
  }
  info.expected = "the same bits";
  info.next = advice(recipe, workers);
  throw Error(ErrorKind::kNumeric, info);
}

/// Runs the same steps in a separate process; returns its exit code.
int trace_apart(recipe::Recipe recipe, int64_t steps, const ScratchDir& scratch, int run,
                Trace& trace) {
  const std::string name = "run-" + std::string(1, static_cast<char>('a' + run));
  recipe.output_dir = scratch.file(name);
  const std::string recipe_file = scratch.file(name + ".yaml"), out = scratch.file(name + ".trace");
  io::write_file_atomic(recipe_file, recipe::dump_recipe(recipe));
  const int code =
      run_self({"debug", "trace", recipe_file, "--steps", std::to_string(steps), "--out", out},
               scratch.file(name));
  if (code == 0) trace = parse_trace(io::read_file(out), out);
  return code;
}

void compare(const Trace& a, const Trace& b, const recipe::Recipe& recipe, const std::string& runs,
             bool workers) {
  if (const auto difference = first_difference(a, b))
    report(*difference, recipe, runs, a, b, workers);
  const int64_t steps = a.records.empty() ? 0 : a.records.back().step;
  print_line("equal      " + runs + ": " + std::to_string(a.records.size()) + " tensors in " +
             std::to_string(steps) + (steps == 1 ? " step" : " steps") +
             (a.ended.empty() ? "" : " (ended at " + escape_text(a.ended, 4000) + ")"));
}

}  // namespace

std::optional<TraceDifference> first_difference(const Trace& a, const Trace& b) {
  const size_t size = std::max(a.records.size(), b.records.size());
  for (size_t i = 0; i < size; ++i) {
    TraceDifference difference;
    if (i < a.records.size()) difference.a = a.records[i];
    if (i < b.records.size()) difference.b = b.records[i];
    difference.step = (difference.a ? difference.a : difference.b)->step;
    if (difference.a && difference.b) {
      difference.same_work = same_tensor(*difference.a, *difference.b);
      if (difference.same_work && difference.a->hash == difference.b->hash) continue;
      count_step(a, b, i, difference);
    }
    return difference;
  }
  return std::nullopt;
}

int check_determinism(const recipe::Recipe& recipe, const DeterminismOptions& options) {
  const ScratchDir scratch(std::filesystem::temp_directory_path() / "lft-determinism-");
  const auto trace = [&](const recipe::Recipe& of_run, int run, Trace& out) {
    if (requested_signal() != 0) throw Stopped();
    if (!options.trace) return trace_apart(of_run, options.steps, scratch, run, out);
    out = options.trace(of_run, run);
    return 0;
  };
  recipe::Recipe other = recipe;
  other.data.workers = recipe.data.workers == 1 ? 4 : 1;
  Trace a, b, c;
  if (const int code = trace(recipe, 0, a); code != 0) return code;
  if (const int code = trace(recipe, 1, b); code != 0) return code;
  compare(a, b, recipe, "two runs of one recipe", /*workers=*/false);
  if (const int code = trace(other, 2, c); code != 0) return code;
  compare(a, c, recipe,
          "runs with " + std::to_string(recipe.data.workers) + " and with " +
              std::to_string(other.data.workers) + " data workers",
          /*workers=*/true);
  print_line("it is deterministic");
  return 0;
}

}  // namespace lft::debug
