// CUDA graphs of repeated bodies, each verified before use: a body first runs without a graph; the
// second time its graph must produce the same outputs. If verification runs out of memory, only
// that graph is dropped.
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
  static constexpr size_t kMost = 16;  // graphs; further bodies run without one

  /// exact: a graph must reproduce the body's outputs bit by bit (deterministic algorithms). A
  /// device without graphs runs every body directly.
  GraphCache(at::Device device, bool exact) : GraphCache(make_graph_arena(device), exact) {}
  GraphCache(std::unique_ptr<GraphArena> arena, bool exact)
      : exact_(exact), arena_(std::move(arena)) {}

  /// Runs body() or its graph. `key` identifies the body in readable form: the same key means the
  /// same kernels on the same addresses. `size`: memory grows with it; a larger one than before
  /// clears all graphs. `outputs`: everything written outside the arena that is read later, always
  /// at the same addresses.
  void run(const std::string& key, int64_t size, const std::vector<at::Tensor>& outputs,
           const std::function<void()>& body);
  /// Frees the arena's memory between two passes; the graphs are recorded again.
  void start_over();
  /// Disables or enables graphs. Replayed
  /// graphs are invisible to call observers.
  void use_graphs(bool use) { uses_ = use; }
  /// Notes for the user since the last call.
  std::vector<std::string> take_notes() { return std::exchange(notes_, {}); }

 private:
  struct Known {
    bool ran = false, refused = false;  // rejected: memory ran out over its graph
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
  std::map<std::string, Known> known_;  // destroyed before the arena
  size_t graphs_ = 0;
  int64_t largest_ = 0;
  bool uses_ = true, gave_up_ = false;
  std::vector<std::string> notes_;
};

}  // namespace lft::train
