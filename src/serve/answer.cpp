#include "src/serve/answer.h"

#include <utility>

namespace lft::serve {

std::vector<Answers::Update> Answers::wait(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, time, [&] { return has_news_; });
  has_news_ = false;
  std::vector<Update> updates = updates_;
  for (Update& update : updates_) update.tokens.clear();
  return updates;
}

void Answers::cancel() {
  for (std::atomic<bool>& each : cancelled_) each = true;
}

void Answers::add(size_t draw, NewToken token) {
  {
    const std::lock_guard lock(mutex_);
    updates_[draw].tokens.push_back(std::move(token));
    has_news_ = true;
  }
  changed_.notify_one();
}

void Answers::end(size_t draw, const infer::FinishedAnswer& how, std::optional<Error> error) {
  {
    const std::lock_guard lock(mutex_);
    Update& update = updates_[draw];
    update.ended = has_news_ = true;
    update.by_limit = how.by_limit;
    update.by_end_token = how.by_end_token;
    update.error = std::move(error);
  }
  changed_.notify_one();
}

}  // namespace lft::serve
