// A stream and a device memory pool for passes that are repeated at fixed shapes, and graphs of
// their launches. On a device without graphs the body is run directly.
#pragma once
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>

namespace lft::train {

/// The recorded launches of a body, replayed in one call: the same kernels and addresses.
class CudaGraph {
 public:
  virtual ~CudaGraph() = default;
  /// Throws only before the launch.
  virtual void replay() = 0;
  virtual int64_t nodes() const = 0;
};

/// The base class is for a device without graphs. A device with graphs synchronizes on
/// construction, frees cached device memory, and has a separate stream that is current for the
/// calling thread until the arena is destroyed. The arena is destroyed after its graphs.
class GraphArena {
 public:
  GraphArena() = default;
  virtual ~GraphArena() = default;
  GraphArena(const GraphArena&) = delete;
  /// Frees all memory of the arena. LibTorch never does this while the arena uses it, not even when
  /// memory runs out. Call it after the graphs are destroyed.
  virtual void start_over() {}
  /// Frees LibTorch's cached memory: while a body runs in the arena, LibTorch runs out of memory
  /// rather than use its cache.
  virtual void give_back() {}
  /// From now on run() only runs the body, with LibTorch's own memory. Call it after the graphs are
  /// destroyed.
  virtual void close() {}
  /// Whether there is something to capture with: a device that records, and not closed.
  virtual bool captures() const { return false; }
  /// Runs body(), whose tensors are allocated in the arena. Tensors that stay alive there are
  /// overwritten by the next replay.
  virtual void run(const std::function<void()>& body) { body(); }
  /// Records the launches of body() without running them. Exceptions of body() and device errors
  /// (kInternal) are rethrown; both leave the stream unchanged.
  virtual std::unique_ptr<CudaGraph> capture(const std::function<void()>& body);
};

using MakeGraphArena = std::unique_ptr<GraphArena> (*)(at::Device device);
/// Registers the arena constructor of a device type. CUDA's is registered if compiled in.
void register_graph_arena(c10::DeviceType type, MakeGraphArena make);
bool records_graphs(at::Device device);
std::unique_ptr<GraphArena> make_graph_arena(at::Device device);

}  // namespace lft::train
