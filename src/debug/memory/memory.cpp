#include "src/debug/memory/memory.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "src/base/errors.h"
#include "src/base/signals.h"
#include "src/base/text.h"
#include "src/debug/memory/memory_page.h"
#include "src/io/files.h"
#include "src/train/inputs/reference.h"
#include "src/train/machine/determinism.h"
#include "src/train/machine/device.h"
#include "src/train/memory/out_of_memory.h"

namespace lft::debug {
namespace {

constexpr size_t kTopModules = 8;

// torch/csrc/cuda/memory_snapshot.h: _record_memory_history(enabled, record_context,
// trace_alloc_max_entries, trace_alloc_record_context, record_cpp_context, clearHistory,
// compileContext, globalRecordAllocations, skip_actions) and _memory_snapshot_pickled().
using Record = void (*)(bool, bool, int64_t, bool, bool, bool, bool, bool,
                        const std::vector<std::string>&);
using Snapshot = std::string (*)();
constexpr char kRecord[] =
    "_ZN5torch4cuda22_record_memory_historyEbblbbbbbRKSt6vectorINSt7__cxx1112basic_"
    "stringIcSt11char_traitsIcESaIcEEESaIS7_EE";
constexpr char kSnapshot[] = "_ZN5torch4cuda24_memory_snapshot_pickledB5cxx11Ev";
constexpr int64_t kMostEntries = 1'000'000;

void snapshot_record(bool on) {
  if (const auto call = reinterpret_cast<Record>(dlsym(RTLD_DEFAULT, kRecord))) {
    call(on, /*record_context=*/on, kMostEntries, /*trace_alloc_record_context=*/on, false, false,
         false, false, {});
  }
}

/// Records a GPU's allocations in the format of PyTorch's memory_viz (pytorch.org/memory_viz). Uses
/// LibTorch's CUDA library at run time; does nothing if it is not open.
/// not open.
class CudaSnapshot {
 public:
  CudaSnapshot() { snapshot_record(true); }
  ~CudaSnapshot() { snapshot_record(false); }
  CudaSnapshot(const CudaSnapshot&) = delete;
  /// The pickled snapshot; "" if there is none.
  std::string pickled() const {
    const auto call = reinterpret_cast<Snapshot>(dlsym(RTLD_DEFAULT, kSnapshot));
    return call == nullptr ? "" : call();
  }
};

std::string size_text(int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

/// Blocks that live as long as the run, by the start of their memory.
std::unordered_map<const void*, MemoryUse> known_blocks(train::Run& run) {
  std::unordered_map<const void*, MemoryUse> known;
  const auto put = [&](const at::Tensor& tensor, MemoryUse use) {
    known[tensor.storage().data()] = use;
  };
  for (const at::Tensor& parameter : run.model.model->parameters())
    put(parameter, MemoryUse::kFrozen);
  for (const lora::Trainable& trainable : run.model.trainables)
    put(trainable.tensor, MemoryUse::kTrainables);
  for (const train::Slot& slot : run.optimizer.slots()) {
    for (const auto& [name, tensor] : train::moment_tensors(slot)) put(tensor, MemoryUse::kMoments);
    if (const at::Tensor& gradient = slot.param.tensor.grad(); gradient.defined()) {
      put(gradient, MemoryUse::kGradients);
    }
    const ops::ShadowPtr& shadow = slot.param.shadow;
    if (shadow && shadow->place().defined()) put(shadow->place(), MemoryUse::kTrainables);
  }
  return known;
}

std::string leak_text(const train::LeakGroup& leak, size_t steps) {
  return std::to_string(leak.count) + " x " + leak.what + ", " + size_text(leak.bytes) + " over " +
         std::to_string(steps - 1) + " steps";
}

std::vector<std::string> lines_of(const MemoryPicture& picture, size_t steps) {
  std::vector<std::string> lines = {"peak       " + size_text(picture.peak.bytes) +
                                    " of tensors, over " + std::to_string(steps) + " steps"};
  for (size_t use = 0; use < kMemoryUses; ++use) {
    if (picture.peak.by_use[use] == 0) continue;
    char line[128];
    std::snprintf(line, sizeof line, "  %-18s %10s  %5.1f %%",
                  use_name(static_cast<MemoryUse>(use)),
                  size_text(picture.peak.by_use[use]).c_str(),
                  100.0 * static_cast<double>(picture.peak.by_use[use]) /
                      static_cast<double>(picture.peak.bytes));
    lines.emplace_back(line);
  }
  if (!picture.modules.empty())
    lines.emplace_back("modules    with the most memory at the peak, without weights");
  for (size_t i = 0; i < std::min(kTopModules, picture.modules.size()); ++i) {
    char size[32];
    std::snprintf(size, sizeof size, "  %10s  ", size_text(picture.modules[i].bytes).c_str());
    lines.push_back(size + picture.modules[i].name + " (" +
                    std::to_string(picture.modules[i].blocks) + " blocks)");
  }
  for (const train::LeakGroup& leak : picture.leaks)
    lines.push_back("leak       every step leaves behind: " + leak_text(leak, steps));
  if (picture.leaks.empty())
    lines.emplace_back(steps < 3 ? "leak       not judged: it takes 3 steps" : "leak       none");
  return lines;
}

std::string snapshot_name(const std::string& page) {
  const size_t dot = page.rfind('.');
  return (dot == std::string::npos || page.find('/', dot) != std::string::npos
              ? page
              : page.substr(0, dot)) +
         ".pickle";
}

/// Steps with their positions among the events. A non-finite step is the last.
std::vector<StepMarks> take_steps(train::Run& run, train::RunMemory& memory,
                                  train::TensorLedger& ledger, const MemoryOptions& options) {
  std::vector<StepMarks> steps;
  const int64_t count = std::min(options.steps, run.total_steps);
  train::find_step_references(run, run.model, count);
  train::StepOptions step_options = lft::debug::step_options(run, options.hooks);
  const auto hook = step_options.gradients_ready;
  step_options.gradients_ready = [&](int64_t step, train::Optimizer& optimizer) {
    steps.back().gradients_ready = ledger.now();
    if (hook) hook(step, optimizer);
  };
  run.optimizer.zero_gradients();  // otherwise the first step would create and keep it
  run.optimizer.refresh_copies(run.state.compute);
  const std::unique_ptr<data::Loader> loader = train::start_loader(run, 0);
  for (int64_t i = 0; i < count && requested_signal() == 0; ++i) {
    const data::StepSamples samples = loader->next();
    memory.begin("step " + std::to_string(i + 1), train::sample_ids(samples));
    steps.push_back({.begin = ledger.now(), .gradients_ready = INT64_MAX, .end = 0});
    const train::StepOutcome outcome =
        train::train_step({run.model.model, run.optimizer, run.scaler, run.schedule}, step_options,
                          samples, run.state);
    steps.back().end = ledger.now();
    steps.back().gradients_ready = std::min(steps.back().gradients_ready, steps.back().end);
    memory.step_done(/*look_for_leaks=*/false);
    if (outcome.result == train::StepResult::kNonFinite) break;
  }
  return steps;
}

MemoryReport record(train::RunInputs inputs, train::RunMemory& memory,
                    const MemoryOptions& options) {
  MemoryReport report;
  const bool gpu = !inputs.device.is_cpu();
  std::optional<CudaSnapshot> snapshot;
  if (gpu) snapshot.emplace();
  train::TensorLedger ledger(memory.watch, /*keep_freed=*/true);
  memory.begin("building the model");
  train::Run run = train::make_run(std::move(inputs));
  if (options.hooks.built) options.hooks.built(run);
  report.steps = take_steps(run, memory, ledger, options);
  report.signal = requested_signal();
  if (report.steps.empty()) return report;
  const std::vector<train::LedgerEntry> entries = ledger.entries();
  report.picture =
      picture(entries, classify(entries, known_blocks(run), report.steps), report.steps);
  if (snapshot) {
    if (const std::string pickled = snapshot->pickled(); !pickled.empty()) {
      report.snapshot = snapshot_name(options.out);
      io::write_file_atomic(report.snapshot, pickled);
    }
  }
  const std::string under =
      run.device.str() + ", " + train::compute_name(run.state.compute) + ", micro-batches of " +
      std::to_string(run.recipe.train.batch_size) + ", activation checkpointing " +
      run.recipe.train.activation_checkpointing.word() +
      ". Time runs by allocations; every tensor of LibTorch on the device is counted.";
  report.page = options.out;
  io::write_file_atomic(report.page, memory_page("Memory of " + run.recipe.model.path, under,
                                                 report.picture, report.steps));
  return report;
}

}  // namespace

ErrorInfo leak_error(const MemoryReport& report) {
  std::vector<std::string> leaks;
  for (const train::LeakGroup& leak : report.picture.leaks)
    leaks.push_back(leak_text(leak, report.steps.size()));
  return {.what = "every step leaves tensors behind",
          .where = report.page,
          .found = join(leaks, "\n", kTopModules),
          .expected = "nothing left behind by a step, but by the first",
          .next =
              "look for a hook or a list that keeps them; where it is none of yours, report it "
              "with the picture"};
}

MemoryReport debug_memory(const recipe::Recipe& asked, const MemoryOptions& options) {
  recipe::Recipe recipe = asked;
  recipe.output_dir += "/debug-memory";  // never created: the run's own folder may contain a run
  train::make_deterministic(recipe.train.deterministic);
  train::RunInputs inputs = train::open_inputs(recipe);
  train::RunMemory memory(inputs.device);
  MemoryReport report;
  try {
    report = record(std::move(inputs), memory, options);
  } catch (const std::exception& error) {
    if (!train::is_out_of_memory(error)) throw;
    ErrorInfo described = memory.describe();
    train::RunInputs again = train::open_inputs(recipe);
    throw train::out_of_memory(std::move(described), memory, again);
  }
  if (report.steps.empty()) return report;
  for (const std::string& line : lines_of(report.picture, report.steps.size()))
    options.print(escape_text(line, 1000));
  options.print("picture    " + escape_text(report.page, 1000));
  if (!report.snapshot.empty())
    options.print("snapshot   " + escape_text(report.snapshot, 1000) +
                  " (pytorch.org/memory_viz opens it)");
  return report;
}

}  // namespace lft::debug
