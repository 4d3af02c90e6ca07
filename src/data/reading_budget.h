// How many bytes threads may hold together for images that they decode: what the memory plan counts
// is then what is taken.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace lft::data {

/// Unlimited until allow() says a number. First come, first served; an image that needs more than
/// all is read when no other one is. Thread-safe.
class ReadingBudget {
 public:
  /// Bytes of the budget, until it dies.
  class Share {
   public:
    Share(ReadingBudget& budget, int64_t bytes);
    ~Share();
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

   private:
    ReadingBudget& budget_;
    int64_t bytes_;
  };

  void allow(int64_t bytes);
  int64_t held() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable freed_;
  int64_t allowed_ = INT64_MAX, held_ = 0;
  uint64_t next_ticket_ = 0, served_ = 0;
};

}  // namespace lft::data
