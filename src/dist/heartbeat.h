// Heartbeats of a process, written into the run's store twice a second by a separate thread: a
// waiting process reads them to identify one that has ended. Ends no process.
#pragma once
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace c10d {
class Store;
}

namespace lft::dist {

using StorePtr = c10::intrusive_ptr<c10d::Store>;

/// The latest heartbeat of a process.
struct Beat {
  int64_t count = 0;
  bool waits = false;  // for the others
  std::string phase = {};
};

class Heartbeat {
 public:
  /// `store`: a separate connection. The first heartbeat is written before it returns.
  Heartbeat(StorePtr store, int64_t rank);
  ~Heartbeat();  // waits for the thread
  Heartbeat(const Heartbeat&) = delete;

  void at(const std::string& phase);
  void waits(bool waits);

 private:
  void write();

  StorePtr store_;
  const std::string key_;
  std::mutex mutex_;
  Beat beat_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

constexpr int64_t kBeatMilliseconds = 500;

/// The latest heartbeat of a process that has sent one.
Beat read_beat(c10d::Store& store, int64_t rank);

}  // namespace lft::dist
