#include "src/dist/heartbeat.h"

#include <chrono>
#include <exception>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace lft::dist {
namespace {

std::string beat_key(int64_t rank) { return "beat/" + std::to_string(rank); }

}  // namespace

Heartbeat::Heartbeat(StorePtr store, int64_t rank)
    : store_(std::move(store)), key_(beat_key(rank)) {
  write();
  thread_ = std::thread([this] {
    constexpr int64_t kPause = 20;
    for (int64_t slept = 0; !stop_; slept += kPause) {
      std::this_thread::sleep_for(std::chrono::milliseconds(kPause));
      if (slept < kBeatMilliseconds) continue;
      slept = 0;
      try {
        write();
      } catch (const std::exception&) {  // the store has ended, and so has every reader
        return;
      }
    }
  });
}

Heartbeat::~Heartbeat() {
  stop_ = true;
  thread_.join();
}

void Heartbeat::at(const std::string& phase) {
  const std::lock_guard lock(mutex_);
  beat_.phase = phase;
}

void Heartbeat::waits(bool waits) {
  const std::lock_guard lock(mutex_);
  beat_.waits = waits;
}

void Heartbeat::write() {
  std::string text;
  {
    const std::lock_guard lock(mutex_);
    text = std::to_string(++beat_.count) + (beat_.waits ? " w " : " - ") + beat_.phase;
  }
  store_->set(key_, text);
}

Beat read_beat(c10d::Store& store, int64_t rank) {
  const std::string text = store.get_to_str(beat_key(rank));
  const size_t space = text.find(' ');
  return {.count = std::stoll(text.substr(0, space)),
          .waits = text[space + 1] == 'w',
          .phase = text.substr(space + 3)};
}

}  // namespace lft::dist
