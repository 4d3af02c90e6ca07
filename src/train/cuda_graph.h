// A stream and a pool of device memory for passes that run again and again at fixed shapes, and CUDA graphs of them. Everywhere else than
// on a GPU an arena runs a body and nothing more.
#pragma once
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>

namespace lft {

/// What a body launched, to be launched again in one call: the same kernels on the same addresses.
class CudaGraph {
 public:
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  void replay();
  int64_t nodes() const;

 private:
  friend class GraphArena;
  struct Impl;
  explicit CudaGraph(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class GraphArena {
 public:
  /// Waits for the device, gives its free memory back, and makes a stream of its own the calling thread's current one until it is gone.
  explicit GraphArena(at::Device device);
  ~GraphArena();  // after its graphs
  GraphArena(const GraphArena&) = delete;
  /// Gives all its memory back, which LibTorch never does by itself while the arena holds it, not even where memory runs out. After its
  /// graphs.
  void start_over();
  /// Gives LibTorch's free memory back: while a body runs in the arena LibTorch would rather run out of memory than take any of that.
  void give_back();
  /// From here on run() runs a body and nothing more, with LibTorch's own memory. After its graphs.
  void close();
  /// Whether there is something to capture with: a GPU, a build with CUDA, and not closed.
  bool captures() const;
  /// body(), whose tensors come from the arena's memory. What it leaves alive there is overwritten by the next replay.
  void run(const std::function<void()>& body);
  /// Records what body() launches, without running it. An exception of body's goes on, and so does an error of CUDA's (kInternal); both
  /// leave the stream as it was.
  std::unique_ptr<CudaGraph> capture(const std::function<void()>& body);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;  // null: no GPU
};

}  // namespace lft
