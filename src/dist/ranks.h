// The processes of a run as one of them sees them: what they say to each other, and what becomes of
// it when one of them fails, is lost or stops. Knows no model and no step. In a run of one process
// (alone()) every call returns at once.
//
// All processes make the same calls in the same order. An exchange carries an error in the place of
// what was to be said: so an error of one process, wherever it comes, is the error of all at their
// next exchange. One thread of a process calls.
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

/// A process is gone, or has not answered in time. Who it is, and where it was last seen, is in the
/// block.
class RankLost : public Error {
 public:
  explicit RankLost(ErrorInfo info) : Error(ErrorKind::kResource, std::move(info)) {}
};

class Ranks {
 public:
  /// Waits for all processes of `place` (more than one), at most for `patience`: kResource naming
  /// those that did not come. Rank 0 keeps the store by which they find each other, unless
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
  /// What this process does from here on, for whoever asks where it was last seen.
  void at(const std::string& phase);

  /// What each process says, by rank. Throws the error of the first process that has one; RankLost.
  std::vector<std::string> exchange(const std::string& mine);
  /// What rank 0 says.
  std::string from_first(const std::string& text);
  /// Tells the others that this process has failed, in the place of its next exchange. The error
  /// that all processes end with: of the first that has one. What was told, or heard, before stays.
  Error failed(const Error& own);

  /// GPUs talk by NCCL from here on: a tensor of `device` does. Nothing on a CPU. kResource where
  /// this build or machine cannot.
  void open_data_group(at::Device device);
  /// Rank 0's bytes, in place, of a contiguous tensor. All devices alike.
  void broadcast(at::Tensor tensor);
  /// A float32 vector becomes the sum of all processes', in place, added in the order of
  /// src/base/sum_tree.h: the same bits in all of them. As many bytes as a ring would take.
  void sum(at::Tensor flat);

  /// Before the last exchange, however long rank 0 works on alone: RankLost in the others when it
  /// has given no sign of life for as long as an exchange waits.
  void await_first();
  /// After the last exchange: rank 0, where it keeps the store, leaves when the others have left.
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

/// Whether a process was lost in this one: its threads may wait for it for ever, so that the
/// program has to end without waiting for them.
bool group_is_broken();

}  // namespace lft::dist
