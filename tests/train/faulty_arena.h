// A CPU arena whose graphs run the bodies directly, and in which memory runs out at a
// chosen stage of a graph's verification. Needs a CountingAllocator. Contains no test.
#pragma once
#include <c10/util/Exception.h>

#include <climits>
#include <functional>
#include <memory>
#include <utility>

#include "src/train/machine/cuda_graph.h"
#include "support/counting_allocator.h"

namespace lft::test {
using namespace lft::train;

enum class Stage {
  kNone,
  kCopiesBefore,
  kPass,
  kCopiesAfter,
  kCapture,
  kReplay,
  kComparison,
  kLaterReplay
};

class FaultyArena : public GraphArena {
 public:
  /// `faults`: the number of graphs that fail.
  explicit FaultyArena(Stage stage, int faults = 1) : stage_(stage), faults_(faults) {}
  ~FaultyArena() override { allow(); }

  void start_over() override { ++started_over; }
  void close() override { closed_ = true; }
  bool captures() const override { return !closed_; }

  void give_back() override {
    allow();
    if (std::exchange(refused_, false)) {  // no body has run since: the copies failed
      --faults_;
      failed_ = true;
    }
    if (std::exchange(failed_, false)) return;  // called when a graph is given up
    live_ = CountingAllocator::live();
    if (stage_ == Stage::kCopiesBefore && faults_ > 0) {
      refused_ = true;
      refuse();
    }
  }

  /// A body that runs after copies were made is one whose graph is to be verified.
  void run(const std::function<void()>& body) override {
    allow();
    refused_ = false;
    const bool proving = CountingAllocator::live() > std::exchange(live_, INT64_MAX);
    body();
    if (proving && fails_at(Stage::kPass)) run_out();  // all its output is written
    if (proving && fails_at(Stage::kCopiesAfter)) refuse();
  }

  std::unique_ptr<CudaGraph> capture(const std::function<void()>& body) override {
    if (fails_at(Stage::kCapture)) run_out();
    return std::make_unique<Graph>(*this, body);
  }

  int started_over = 0;

 private:
  /// Keeps the body, which must outlive it.
  class Graph : public CudaGraph {
   public:
    Graph(FaultyArena& arena, std::function<void()> body) : arena_(arena), body_(std::move(body)) {}
    void replay() override {
      if (arena_.fails_at(std::exchange(proven_, true) ? Stage::kLaterReplay : Stage::kReplay))
        run_out();
      body_();
      if (arena_.fails_at(Stage::kComparison)) refuse();
    }
    int64_t nodes() const override { return 1; }

   private:
    FaultyArena& arena_;
    const std::function<void()> body_;
    bool proven_ = false;
  };

  bool fails_at(Stage stage) {
    if (stage_ != stage || faults_ == 0) return false;
    --faults_;
    failed_ = true;
    return true;
  }
  [[noreturn]] static void run_out() {
    TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate 1.25 GiB");
  }
  static void refuse() {
    CountingAllocator::limit(CountingAllocator::live() + 1024);
  }  // room for a few numbers, not for a copy
  static void allow() { CountingAllocator::limit(INT64_MAX); }

  const Stage stage_;
  int faults_;
  int64_t live_ = INT64_MAX;  // before copies
  bool refused_ = false, failed_ = false, closed_ = false;
};

}  // namespace lft::test
