// CUDA graphs of bodies that run again and again, each proven before it is used: the first time a
// body runs without a graph, the second time its graph must give what the body gave. Memory that
// the proof cannot have takes that graph and nothing else.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/train/machine/cuda_graph.h"

namespace lft::train {

class GraphCache {
 public:
  static constexpr size_t kMost = 16;  // graphs; later bodies run without one

  /// exact: a graph must give the very bits that the body gave (deterministic algorithms). A device
  /// that cannot record runs every body without a graph.
  GraphCache(at::Device device, bool exact) : GraphCache(make_graph_arena(device), exact) {}
  GraphCache(std::unique_ptr<GraphArena> arena, bool exact)
      : exact_(exact), arena_(std::move(arena)) {}

  /// body() or the graph of it. `key` says what is run, for a reader too: the same key is the same
  /// body, launching the same kernels on the same addresses. `size`: what its memory grows with;
  /// one larger than all before starts over. `outputs`: whatever it writes that is read later,
  /// outside the arena and always in the same place.
  void run(const std::string& key, int64_t size, const std::vector<at::Tensor>& outputs,
           const std::function<void()>& body);
  /// Frees the arena's memory for work between two passes; the graphs are recorded again.
  void start_over();
  /// A graph launches nothing that an observer of calls could see: without graphs from here on, or
  /// with them again.
  void use_graphs(bool use) { uses_ = use; }
  /// Notes for the user since the last call.
  std::vector<std::string> take_notes() { return std::exchange(notes_, {}); }

 private:
  struct Known {
    bool ran = false, refused = false;  // refused: memory ran out over its graph
    std::unique_ptr<CudaGraph> graph;
  };
  struct Fault;
  static Fault fault_of(const std::function<void()>& part);

  void capture(const std::string& key, Known& known, const std::vector<at::Tensor>& outputs,
               const std::function<void()>& body);
  void prove(const std::string& key, Known& known, const std::vector<at::Tensor>& outputs,
             const std::function<void()>& body, std::vector<at::Tensor> before);
  void drop_graphs();
  void give_up(const std::string& key, Known& known, const Fault& fault);

  const bool exact_;
  const std::unique_ptr<GraphArena> arena_;
  std::map<std::string, Known> known_;  // gone before the arena
  size_t graphs_ = 0;
  int64_t largest_ = 0;
  bool uses_ = true, gave_up_ = false;
  std::vector<std::string> notes_;
};

}  // namespace lft::train
