#include "src/data/loader.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "kernels/common/error.h"
#include "models/ops/core/parallel.h"
#include "src/base/errors.h"
#include "src/base/sum_tree.h"
#include "src/data/shared_prompt.h"
#include "src/data/store/data_changed.h"

namespace lft::data {
bool MicroBatchCutter::starts_micro_batch(int64_t place, int64_t tokens) {
  if (max_tokens_ == 0) return place % batch_size_ == 0;
  const bool starts = place == 0 || held_ + tokens > max_tokens_;
  held_ = starts ? tokens : held_ + tokens;
  return starts;
}

/// The positions of a step in the order of its epoch, as far as known before samples are read.
struct StepCut {
  Range places;                      // positions of this loader from the step's first on
  std::vector<int64_t> starts = {};  // starts of all its micro-batches; empty: found by reading
  int64_t first = 0;                 // number of the micro-batch that begins at `places`
};

namespace {

int64_t tokens_of(const LoaderOptions& options, int64_t index) {
  return options.tokens ? (*options.tokens)[static_cast<size_t>(index)] : 0;
}

/// `order`: the dataset indices of the step.
StepCut share_of_step(const LoaderOptions& options, std::span<const int64_t> order) {
  const auto count = static_cast<int64_t>(order.size());
  StepCut cut{.places = {0, count}};
  if (options.ranks == 1) return cut;
  MicroBatchCutter cutter(options);
  for (int64_t place = 0; place < count; ++place) {
    if (cutter.starts_micro_batch(place, tokens_of(options, order[static_cast<size_t>(place)])))
      cut.starts.push_back(place);
  }
  const Range share = share_of(std::ssize(cut.starts), options.rank, options.ranks);
  const auto begin_of = [&](int64_t micro) {
    return micro < std::ssize(cut.starts) ? cut.starts[static_cast<size_t>(micro)] : count;
  };
  cut.places = {begin_of(share.begin), begin_of(share.end)};
  cut.first = share.begin;
  return cut;
}

}  // namespace

/// A position in the endless stream of samples, filled by the worker that takes it.
struct Slot {
  int64_t index = 0;
  bool done = false;
  std::vector<Sample> sides;  // of a pair both
  std::exception_ptr error;
};

struct Loader::State {
  static constexpr size_t kMostCuts = 64;  // steps read ahead in which this rank has no sample

  State(const Dataset& data, LoaderOptions settings, int64_t first_step)
      : dataset(data),
        options(settings),
        size(epoch_size(settings, data.size())),
        step(first_step) {
    group = options.batch_size * options.grad_accum;
    steps_per_epoch = (size + group - 1) / group;
    ahead = first_step;
    // One step and two samples per worker are read ahead, within a memory limit.
    capacity =
        static_cast<size_t>(std::min<int64_t>(group / options.ranks + 2 * options.workers, 4096));
  }
  ~State() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    room.notify_all();
    for (std::thread& thread : threads) thread.join();
  }

  const Dataset& dataset;
  const LoaderOptions options;
  const int64_t size;  // samples per epoch
  int64_t group = 0, steps_per_epoch = 0;
  int64_t step = 0;            // the step that next() returns; used by the consumer only
  std::exception_ptr failure;  // the exception that next() threw

  // Guarded by the mutex: the end of the stream as seen by the workers, and the slots between it
  // and the consumer.
  std::mutex mutex;
  std::condition_variable room, filled;
  std::deque<std::shared_ptr<Slot>> queue;
  std::deque<StepCut> cuts;  // steps that were begun and not returned yet
  int64_t ahead = 0;         // the next step to begin
  Range open;                // rest of the step that was begun last, in the epoch's order
  std::optional<EpochOrder> order;
  int64_t order_epoch = -1;
  size_t capacity = 0;
  bool stop = false;
  std::exception_ptr broken;  // the exception that ended a worker
  std::vector<std::thread> threads;

  bool has_room() const { return queue.size() < capacity && cuts.size() < kMostCuts; }

  /// Begins a step, which may have no sample for this rank. The caller has locked the mutex.
  void begin_step() {
    if (const int64_t epoch = ahead / steps_per_epoch; order_epoch != epoch) {
      order.emplace(options, dataset.size(), epoch);
      order_epoch = epoch;
    }
    const int64_t begin = (ahead % steps_per_epoch) * group;
    std::vector<int64_t> indices(static_cast<size_t>(std::min(group, size - begin)));
    for (size_t i = 0; i < indices.size(); ++i)
      indices[i] = order->at(begin + static_cast<int64_t>(i));
    cuts.push_back(share_of_step(options, indices));
    open = {begin + cuts.back().places.begin, begin + cuts.back().places.end};
    ++ahead;
  }

  /// The next position of the stream; null if the current step has none. The caller has locked
  /// the mutex.
  std::shared_ptr<Slot> take() {
    if (open.size() == 0) begin_step();
    if (open.size() == 0) return nullptr;
    auto slot = std::make_shared<Slot>();
    slot->index = order->at(open.begin++);
    return slot;
  }

  void fill(Slot& slot) {
    try {
      slot.sides = dataset.sides(slot.index);
    } catch (...) {
      slot.error = std::current_exception();
    }
  }

  /// Out of memory in a worker between two samples is rethrown in the consumer, like an error
  /// within a sample.
  void work() {
    try {
      take_and_fill();
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!broken) broken = std::current_exception();
      filled.notify_one();
    }
  }

  void take_and_fill() {
    ops::stay_single_threaded();
    std::unique_lock lock(mutex);
    while (true) {
      room.wait(lock, [this] { return stop || has_room(); });
      if (stop) return;
      const std::shared_ptr<Slot> slot = take();
      filled.notify_one();
      if (!slot) continue;
      queue.push_back(slot);
      lock.unlock();
      fill(*slot);
      lock.lock();
      slot->done = true;
      filled.notify_one();
    }
  }

  std::shared_ptr<Slot> pop() {
    std::unique_lock lock(mutex);
    if (threads.empty()) {
      const std::shared_ptr<Slot> slot = take();
      fill(*slot);
      return slot;
    }
    filled.wait(lock, [this] { return broken || (!queue.empty() && queue.front()->done); });
    if (broken) std::rethrow_exception(broken);
    const std::shared_ptr<Slot> slot = queue.front();
    queue.pop_front();
    room.notify_one();
    return slot;
  }

  /// The positions of the next step.
  StepCut pop_cut() {
    std::unique_lock lock(mutex);
    if (threads.empty()) begin_step();
    filled.wait(lock, [this] { return broken || !cuts.empty(); });
    if (cuts.empty()) std::rethrow_exception(broken);
    StepCut cut = std::move(cuts.front());
    cuts.pop_front();
    room.notify_one();
    return cut;
  }

  /// True if the slot's error is a bad sample to skip; any other error is rethrown.
  bool leave_out(const Slot& slot, StepSamples& step_samples) {
    if (!slot.error) return false;
    try {
      std::rethrow_exception(slot.error);
    } catch (const DataChanged&) {
      throw;
    } catch (const Error& error) {
      if (!options.skip_bad || error.kind() != ErrorKind::kInput) throw;
      const ErrorInfo& info = error.info();
      step_samples.skipped.push_back(escape_text(dataset.id(slot.index)) + ": " + info.what +
                                     (info.found.empty() ? "" : " (" + info.found + ")"));
      step_samples.skipped_indices.push_back(slot.index);
    }
    return true;
  }
};

Loader::Loader(const Dataset& dataset, LoaderOptions options, int64_t first_step) {
  if (dataset.size() < 1) {
    refuse(ErrorKind::kInput, "the data set has no samples", {}, {}, {},
           "use data that has samples");
  }
  if (options.lengths && static_cast<int64_t>(options.lengths->size()) != dataset.size()) {
    throw Error(ErrorKind::kInternal, "there is not one length for each sample");
  }
  if (options.tokens ? static_cast<int64_t>(options.tokens->size()) != dataset.size()
                     : options.ranks > 1 && options.max_tokens > 0) {
    throw Error(ErrorKind::kInternal, "the ranks' cut needs the tokens of each sample");
  }
  state_ = std::make_unique<State>(dataset, options, first_step);
  for (int64_t i = 0; i < options.workers; ++i)
    state_->threads.emplace_back([state = state_.get()] { state->work(); });
}

Loader::~Loader() = default;

int64_t Loader::steps_per_epoch() const { return state_->steps_per_epoch; }

family::Batch StepSamples::take(size_t index) const {
  if (index > 0 || !made || !made->input_ids_bt.defined()) return make(micro[index]);
  return std::exchange(*made, family::Batch());
}

StepSamples Loader::next() {
  State& state = *state_;
  if (state.failure) std::rethrow_exception(state.failure);
  StepSamples result;
  result.layout = state_->options.layout;
  result.epoch = state.step / state.steps_per_epoch;
  MicroBatchCutter cutter(state.options);
  try {
    const StepCut cut = state.pop_cut();
    int64_t number = cut.first - 1;
    for (int64_t place = cut.places.begin; place < cut.places.end; ++place) {
      const std::shared_ptr<Slot> slot = state.pop();
      const bool left_out = state.leave_out(*slot, result);
      const bool shares = result.layout && result.layout->encode.share_prompts;
      const bool known = state.options.tokens || state.options.max_tokens == 0;
      const int64_t tokens =
          known ? tokens_of(state.options, slot->index) : packed_positions(slot->sides, shares);
      const bool starts = cut.starts.empty() ? cutter.starts_micro_batch(place, tokens)
                                             : std::ranges::binary_search(cut.starts, place);
      if (starts) ++number;
      if (result.micro.empty() || (starts && !result.micro.back().empty())) {
        result.micro.emplace_back();
        result.indices.emplace_back();
        result.numbers.push_back(number);
      }
      result.numbers.back() = number;  // earlier ones at this position were skipped
      if (left_out) continue;
      for (Sample& side : slot->sides) {
        result.micro.back().push_back(std::move(side));
        result.indices.back().push_back(slot->index);
      }
    }
    result.cut = cut.starts.empty() ? number + 1 : std::ssize(cut.starts);
  } catch (...) {
    state.failure = std::current_exception();
    throw;
  }
  if (!result.micro.empty() && result.micro.back().empty()) {
    result.micro.pop_back();
    result.indices.pop_back();
    result.numbers.pop_back();
  }
  ++state.step;
  return result;
}

}  // namespace lft::data
