// After a failed exchange: finds the process that has ended or does not answer, from the heartbeats
// of the others, and decides which process reports it.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "kernels/common/error.h"
#include "src/dist/heartbeat.h"

namespace lft::dist {

/// Facts about a failed exchange.
struct Failure {
  int64_t rank = 0;                // of this process
  std::vector<std::string> hosts;  // by rank
  bool first_of_its_machine = false;
  bool timed_out = false;  // false: a connection was closed
  std::string what = {};   // the library's own message
};

struct Finding {
  ErrorInfo info;
  bool speaks =
      false;  // this process prints it: rank 0, or the first remaining one if rank 0 has ended
};

/// Rank 0 looks for processes without a heartbeat that have not ended for the same reason; the
/// others write a note and wait for the finding of rank 0 while it sends heartbeats. Takes about 2
/// seconds, 4 if rank 0 has ended. `store`: a separate connection, which may be left waiting.
Finding find_lost(StorePtr store, const Failure& failure);

/// Called by rank 0 if it runs the store: waits
/// until all living processes have read its finding.
void wait_until_heard(StorePtr store, const Failure& failure, std::chrono::milliseconds patience);

/// Waits until rank 0 has announced itself (true) or has sent no heartbeat for `patience`.
bool await_first(StorePtr store, std::chrono::milliseconds patience);
/// Announces rank 0 to await_first() in the others.
void say_that_first_comes(c10d::Store& store);

}  // namespace lft::dist
