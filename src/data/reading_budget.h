// Limits the memory of all threads that decode images, so that it is at most what the memory plan
// counts.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace lft::data {

/// Unlimited until allow() is called. Requests are served in their order; an image that needs more
/// than the whole budget is decoded while no other image is. Thread-safe.
class ReadingBudget {
 public:
  /// Reserves bytes of the budget during its lifetime.
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
