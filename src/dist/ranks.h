// The processes of a run as one of them sees them: their messages to each other, and what happens
// when one of them fails, is lost or stops. Knows no model and no step. In a run of one process
// (alone()) every call returns at once.
//
// All processes make the same calls in the same order. An exchange carries an error instead of the
// message: so an error of one process is the error of all at their next exchange. Only one thread
// of a process makes these calls.
#pragma once
#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/common/error.h"
#include "src/dist/place.h"

namespace lft::dist {

/// A process has ended, or has not answered in time. The error names it and the place where it was
/// last seen.
class RankLost : public Error {
 public:
  explicit RankLost(ErrorInfo info) : Error(ErrorKind::kResource, std::move(info)) {}
};

class Ranks {
 public:
  /// Waits for all processes of `place` (more than one), at most for `patience`: kResource naming
  /// those that did not join. Rank 0 keeps the store by which they find each other, unless
  /// torchrun's agent does.
  Ranks(const Place& place, std::chrono::milliseconds patience);
  ~Ranks();
  Ranks(const Ranks&) = delete;

  int64_t rank() const;
  int64_t size() const;
  bool alone() const { return size() == 1; }
  bool first() const { return rank() == 0; }
  /// How long an exchange waits for the others.
  void set_timeout(std::chrono::milliseconds timeout);
  /// Names what this process does from now on, for messages about where it was last seen.
  void at(const std::string& phase);

  /// Every process's text, by rank. Throws the error of the first process that has one; RankLost.
  std::vector<std::string> exchange(const std::string& mine);
  /// Rank 0's text.
  std::string from_first(const std::string& text);
  /// Tells the others that this process has failed, instead of its next exchange. The error
  /// that all processes end with is that of the first one that has any; an earlier one stays.
  Error failed(const Error& own);

  /// From now on tensors of a GPU `device` are exchanged by NCCL. Does nothing on a CPU. kResource
  /// when this build or machine has no NCCL.
  void open_data_group(at::Device device);
  /// Replaces the bytes of a contiguous tensor by rank 0's, on any device.
  void broadcast(at::Tensor tensor);
  /// All-reduces a float32 vector in place, added in the order of src/base/sum_tree.h: the same
  /// bits in all processes. Transfers as many bytes as a ring.
  void sum(at::Tensor flat);

  /// Called before the last exchange, while rank 0 works alone: RankLost in the others when it has
  /// given no sign of life for as long as an exchange waits.
  void await_first();
  /// Called after the last exchange: rank 0 keeps the store until the others have left.
  void leave();

 private:
  friend Ranks& alone();
  struct State;
  Ranks();
  void lost(const std::exception& error);
  std::vector<std::string> talk(const std::string& mine, bool error);

  std::unique_ptr<State> state_;  // null: this process is alone
};

/// The ranks of a run of one process: rank 0 of 1.
Ranks& alone();

/// Whether another process was lost: threads may wait for it for ever, so that the program has to
/// end without joining them.
bool group_is_broken();

}  // namespace lft::dist
