#include "src/data/reading_budget.h"

namespace lft::data {

ReadingBudget::Share::Share(ReadingBudget& budget, int64_t bytes) : budget_(budget), bytes_(bytes) {
  std::unique_lock lock(budget.mutex_);
  const uint64_t ticket = budget.next_ticket_++;
  budget.freed_.wait(lock, [&] {
    return ticket == budget.served_ &&
           (budget.held_ == 0 || bytes <= budget.allowed_ - budget.held_);
  });
  ++budget.served_;
  budget.held_ += bytes;
  budget.freed_.notify_all();  // the next request may proceed
}

ReadingBudget::Share::~Share() {
  const std::lock_guard lock(budget_.mutex_);
  budget_.held_ -= bytes_;
  budget_.freed_.notify_all();
}

void ReadingBudget::allow(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  allowed_ = bytes;
  freed_.notify_all();
}

int64_t ReadingBudget::held() const {
  const std::lock_guard lock(mutex_);
  return held_;
}

}  // namespace lft::data
