#include "src/train/memory/tensor_ledger.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <utility>

#include "src/train/explain/pass_walk.h"

namespace lft::train {
namespace {

std::string shape_text(const at::Tensor& tensor) {
  std::string text = c10::toString(tensor.scalar_type());
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return text + " " + c10::str(tensor.sizes());
}

/// Running ops of this thread, the outermost first, and which of them this is.
thread_local std::vector<const char*> running;
thread_local int64_t outermost = 0;
std::atomic<int64_t> outermost_ops = 0;

}  // namespace

/// Observes every op: a block belongs to the outermost op at its allocation, and has the shape of
/// that op's result.
struct TensorLedger::Ops {
  explicit Ops(TensorLedger& to) : ledger(to) {
    current = this;
    const auto start = [](const at::RecordFunction& fn) -> std::unique_ptr<at::ObserverContext> {
      if (running.empty()) outermost = ++outermost_ops;
      running.push_back(fn.name());
      return nullptr;
    };
    const auto end = [](const at::RecordFunction& fn, at::ObserverContext*) {
      if (current != nullptr) current->ended(fn);
      if (!running.empty()) running.pop_back();
    };
    handle = at::addThreadLocalCallback(at::RecordFunctionCallback(start, end)
                                            .needsOutputs(true)
                                            .scopes({at::RecordScope::FUNCTION}));
  }
  ~Ops() {
    at::removeCallback(handle);
    current = nullptr;
    running.clear();
  }

  void ended(const at::RecordFunction& fn) {
    std::vector<at::Tensor> results;
    for (const c10::IValue& value : fn.outputs()) collect_tensors(value, results);
    const std::lock_guard lock(ledger.mutex_);
    for (const at::Tensor& result : results) {
      if (!result.has_storage() || result.nbytes() != result.storage().nbytes()) continue;
      const auto found = ledger.held_.find(result.storage().data());
      if (found != ledger.held_.end() && found->second.op_run == outermost)
        found->second.shape = shape_text(result);
    }
  }

  TensorLedger& ledger;
  at::CallbackHandle handle{};
  static inline Ops* current = nullptr;  // LibTorch's callbacks are plain functions
};

TensorLedger::TensorLedger(MemoryWatch& watch, bool keep_freed)
    : watch_(watch), keep_freed_(keep_freed), ops_(std::make_unique<Ops>(*this)) {
  watch_.set_sink(this);
}

TensorLedger::~TensorLedger() { watch_.set_sink(nullptr); }

void TensorLedger::allocated(const void* block, int64_t bytes) {
  LedgerEntry entry{.block = block,
                    .bytes = bytes,
                    .phase = phase_,
                    .place = watch_.place(),
                    .op = {},
                    .shape = {}};
  if (!running.empty()) {
    entry.op = running.front();
    entry.op_run = outermost;
  }
  const std::lock_guard lock(mutex_);
  entry.born = events_++;
  held_[block] = std::move(entry);
}

void TensorLedger::freed(const void* block, int64_t) {
  const std::lock_guard lock(mutex_);
  const auto found = held_.find(block);
  if (found == held_.end()) return;  // allocated before the ledger
  found->second.died = events_++;
  if (keep_freed_) done_.push_back(std::move(found->second));
  held_.erase(found);
}

std::vector<LedgerEntry> TensorLedger::entries() const {
  const std::lock_guard lock(mutex_);
  std::vector<LedgerEntry> all(done_.begin(), done_.end());
  for (const auto& [block, entry] : held_) all.push_back(entry);
  std::sort(all.begin(), all.end(),
            [](const LedgerEntry& a, const LedgerEntry& b) { return a.born < b.born; });
  return all;
}

}  // namespace lft::train
