// A stream and a pool of device memory for passes that run again and again at fixed shapes, and
// graphs of what they launch. A device that cannot record only runs the body.
#pragma once
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>

namespace lft::train {

/// What a body launched, to be launched again in one call: the same kernels on the same addresses.
class CudaGraph {
 public:
  virtual ~CudaGraph() = default;
  /// Throws only before the launch.
  virtual void replay() = 0;
  virtual int64_t nodes() const = 0;
};

/// That of a device which cannot record. One that can waits for the device when it is made, gives
/// the device's free memory back, and has a separate stream that is the calling thread's current
/// one until the arena is gone. It goes after its graphs.
class GraphArena {
 public:
  GraphArena() = default;
  virtual ~GraphArena() = default;
  GraphArena(const GraphArena&) = delete;
  /// Gives all its memory back, which LibTorch never does by itself while the arena holds it, not
  /// even where memory runs out. After its graphs.
  virtual void start_over() {}
  /// Gives LibTorch's free memory back: while a body runs in the arena LibTorch would rather run
  /// out of memory than take any of that.
  virtual void give_back() {}
  /// From now on run() only runs the body, with LibTorch's own memory. Call it after the graphs are
  /// destroyed.
  virtual void close() {}
  /// Whether there is something to capture with: a device that records, and not closed.
  virtual bool captures() const { return false; }
  /// body(), whose tensors come from the arena's memory. What it leaves alive there is overwritten
  /// by the next replay.
  virtual void run(const std::function<void()>& body) { body(); }
  /// Records what body() launches, without running it. An exception of body's is passed on, and so
  /// does an error of the device's (kInternal); both leave the stream as it was.
  virtual std::unique_ptr<CudaGraph> capture(const std::function<void()>& body);
};

using MakeGraphArena = std::unique_ptr<GraphArena> (*)(at::Device device);
/// How a type of device creates its arenas. CUDA's is registered where it is compiled in.
void register_graph_arena(c10::DeviceType type, MakeGraphArena make);
bool records_graphs(at::Device device);
std::unique_ptr<GraphArena> make_graph_arena(at::Device device);

}  // namespace lft::train
