// The processes of a run from the view of one of them: messages, and handling of a process that
// fails, is lost or stops. Independent of model and steps. In a run with one process (alone())
// every call returns immediately.
//
// All processes make the same calls in the same order. An exchange carries an error or a stop
// instead of the message: so an error of one process is the error of all at their next exchange,
// and a signal that stops one stops all. Only one thread of a process makes these calls.
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

/// A process has ended, or has not answered in time. The error contains its rank and last known
/// phase.
class RankLost : public Error {
 public:
  explicit RankLost(ErrorInfo info) : Error(ErrorKind::kResource, std::move(info)) {}
};

class Ranks {
 public:
  /// Waits for all processes of `place` (more than one), at most for `patience`: kResource with
  /// those that did not join. Rank 0 runs the store for the rendezvous, unless torchrun's agent
  /// does.
  Ranks(const Place& place, std::chrono::milliseconds patience);
  ~Ranks();
  Ranks(const Ranks&) = delete;

  int64_t rank() const;
  int64_t size() const;
  bool alone() const { return size() == 1; }
  bool first() const { return rank() == 0; }
  /// The timeout of an exchange.
  void set_timeout(std::chrono::milliseconds timeout);
  /// Sets the current phase of this process, for messages about where it was last seen.
  void at(const std::string& phase);

  /// Every process's text, by rank. Throws the error of the first process that has one, or Stopped
  /// if that one was stopped; RankLost.
  std::vector<std::string> exchange(const std::string& mine);
  /// Rank 0's text.
  std::string from_first(const std::string& text);
  /// Reports to the others that this process has failed, in place of its next exchange. All
  /// processes end with the error of the first one that has any; an earlier one is kept.
  Error failed(const Error& own);
  /// The same for a process that a signal has stopped. Returns the signal of the first one; throws
  /// the error of the first one instead if it has failed.
  int stopped(int signal);

  /// Exchanges tensors of a GPU `device` by NCCL from now on. Does nothing on a CPU. kResource if
  /// this build or machine has no NCCL.
  void open_data_group(at::Device device);
  /// Replaces the bytes of a contiguous tensor by rank 0's, on any device.
  void broadcast(at::Tensor tensor);
  /// All-reduces a float32 vector in place, added in the order of src/base/sum_tree.h: the same
  /// bits in all processes. Transfers as many bytes as a ring.
  void sum(at::Tensor flat);

  /// Called before the last exchange, while only rank 0 works: RankLost in the others if it has
  /// sent no heartbeat for the timeout of an exchange.
  void await_first();
  /// Called after the last exchange: rank 0 runs the store until the others have left.
  void leave();

 private:
  friend Ranks& alone();
  struct State;
  Ranks();
  void lost(const std::exception& error);
  enum class Message : uint8_t { kText, kError, kStop };
  std::vector<std::string> talk(const std::string& mine, Message kind);

  std::unique_ptr<State> state_;  // null: this process is alone
};

/// The ranks of a run of one process: rank 0 of 1.
Ranks& alone();

/// Whether another process was lost: threads may wait for it forever, so that the program has to
/// end without joining them.
bool group_is_broken();

}  // namespace lft::dist
