// After an exchange has failed: which process is gone, or does not answer, as far as the others'
// signs of life tell, and who says it.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "kernels/common/error.h"
#include "src/dist/heartbeat.h"

namespace lft::dist {

/// What is known when an exchange has failed.
struct Failure {
  int64_t rank = 0;                // of this process
  std::vector<std::string> hosts;  // by rank
  bool first_of_its_machine = false;
  bool timed_out = false;  // else a connection was closed
  std::string what = {};   // in the words of the library
};

struct Finding {
  ErrorInfo info;
  bool speaks =
      false;  // this process prints it: rank 0, or the first that is left where it is gone
};

/// Rank 0 looks for those that give no sign and have not left because they saw the same; the others
/// leave a note and wait for what rank 0 says, as long as that gives signs. Takes some 2 seconds,
/// 4 where rank 0 is gone. `store`: a connection that nobody else uses; it may be
/// left waiting for good.
Finding find_lost(StorePtr store, const Failure& failure);

/// Rank 0, where it keeps the store: until all that still give signs have heard what it found.
void wait_until_heard(StorePtr store, const Failure& failure, std::chrono::milliseconds patience);

/// Until rank 0 has said that it comes: true; or has given no sign of life for `patience`.
bool await_first(StorePtr store, std::chrono::milliseconds patience);
/// As rank 0.
void say_that_first_comes(c10d::Store& store);

}  // namespace lft::dist
