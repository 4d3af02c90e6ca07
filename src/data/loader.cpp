#include "src/data/loader.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "kernels/common/error.h"
#include "models/ops/core/parallel.h"
#include "src/base/errors.h"
#include "src/data/store/data_changed.h"

namespace lft::data {
bool MicroBatchCutter::starts_micro_batch(int64_t place, int64_t tokens) {
  if (max_tokens_ == 0) return place % batch_size_ == 0;
  const bool starts = place == 0 || held_ + tokens > max_tokens_;
  held_ = starts ? tokens : held_ + tokens;
  return starts;
}

/// A place in the endless stream of samples, filled by whoever takes it.
struct Slot {
  int64_t index = 0;
  bool done = false;
  Sample sample;
  std::exception_ptr error;
};

struct Loader::State {
  State(const Dataset& data, LoaderOptions settings, int64_t first_step)
      : dataset(data), options(settings), size(data.size()), step(first_step) {
    group = options.batch_size * options.grad_accum;
    steps_per_epoch = (size + group - 1) / group;
    epoch = first_step / steps_per_epoch;
    position = (first_step % steps_per_epoch) * group;
    // A step ahead and two samples a worker, within bounds of memory.
    capacity = static_cast<size_t>(std::min<int64_t>(group + 2 * options.workers, 4096));
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
  const int64_t size;
  int64_t group = 0, steps_per_epoch = 0;
  int64_t step = 0;            // the step that next() gives; the consumer's alone
  std::exception_ptr failure;  // what next() threw

  // Under the mutex: the stream's end as seen by the workers, and the slots between it and the
  // consumer.
  std::mutex mutex;
  std::condition_variable room, filled;
  std::deque<std::shared_ptr<Slot>> queue;
  int64_t epoch = 0, position = 0;
  std::optional<EpochOrder> order;
  int64_t order_epoch = -1;
  size_t capacity = 0;
  bool stop = false;
  std::exception_ptr broken;  // what ended a worker
  std::vector<std::thread> threads;

  /// The next place of the stream. The caller holds the mutex.
  std::shared_ptr<Slot> take() {
    if (order_epoch != epoch) {
      order.emplace(options, size, epoch);
      order_epoch = epoch;
    }
    auto slot = std::make_shared<Slot>();
    slot->index = order->at(position);
    if (++position == size) {
      position = 0;
      ++epoch;
    }
    return slot;
  }

  void fill(Slot& slot) {
    try {
      slot.sample = dataset.get(slot.index);
    } catch (...) {
      slot.error = std::current_exception();
    }
  }

  /// A worker that runs out of memory between two samples is the consumer's error, as one within a
  /// sample is.
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
      room.wait(lock, [this] { return stop || queue.size() < capacity; });
      if (stop) return;
      const std::shared_ptr<Slot> slot = take();
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

  /// True where the slot's error is a bad sample to be left out; any other error is rethrown.
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
    refuse(ErrorKind::kInput, "the dataset holds no sample", {}, {}, {},
           "name data that holds one");
  }
  if (options.lengths && static_cast<int64_t>(options.lengths->size()) != dataset.size()) {
    throw Error(ErrorKind::kInternal, "there is not one length for each sample");
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
  const int64_t begin = (state.step % state.steps_per_epoch) * state.group;
  const int64_t count = std::min(state.group, state.size - begin);
  MicroBatchCutter cutter(state.options);
  try {
    for (int64_t i = 0; i < count; ++i) {
      const std::shared_ptr<Slot> slot = state.pop();
      const bool left_out = state.leave_out(*slot, result);
      const bool starts = cutter.starts_micro_batch(
          i, left_out ? 0 : static_cast<int64_t>(slot->sample.input_ids.size()));
      if (result.micro.empty() || (starts && !result.micro.back().empty())) {
        result.micro.emplace_back();
        result.indices.emplace_back();
      }
      if (left_out) continue;
      result.micro.back().push_back(std::move(slot->sample));
      result.indices.back().push_back(slot->index);
    }
  } catch (...) {
    state.failure = std::current_exception();
    throw;
  }
  if (result.micro.back().empty()) {
    result.micro.pop_back();
    result.indices.pop_back();
  }
  ++state.step;
  return result;
}

}  // namespace lft::data
