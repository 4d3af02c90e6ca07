#include "src/train/machine/cuda_graph.h"

#include <map>

#include "kernels/common/error.h"
#ifdef LFT_HAVE_CUDA
#include <ATen/Context.h>
#include <ATen/core/CachingHostAllocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <optional>

#include "kernels/common/launch.h"
#endif

namespace lft::train {
namespace {

#ifdef LFT_HAVE_CUDA

namespace allocator = c10::cuda::CUDACachingAllocator;

/// Ids are unique: a released pool stays alive while it contains an allocation (cuBLAS keeps its
/// workspaces), and LibTorch asserts that it is not used again.
c10::MempoolId_t new_pool() {
  static std::atomic<uint64_t> next = uint64_t{1} << 40;  // LibTorch's own count up from 1
  return {0, next++};
}

/// Like check_cuda, but also clears the thread's error, which LibTorch would find after its next
/// launch.
void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) cudaGetLastError();
  check_cuda(status, what);
}

class RecordedGraph final : public CudaGraph {
 public:
  RecordedGraph(cudaGraph_t graph, cudaStream_t stream) : stream_(stream) {
    size_t nodes = 0;
    cudaGraphGetNodes(graph, nullptr, &nodes);
    nodes_ = static_cast<int64_t>(nodes);
    const cudaError_t made = cudaGraphInstantiate(&exec_, graph, 0);
    cudaGraphDestroy(graph);
    check(made, "cudaGraphInstantiate");
  }
  ~RecordedGraph() override {
    if (exec_ != nullptr) cudaGraphExecDestroy(exec_);
  }
  void replay() override { check(cudaGraphLaunch(exec_, stream_), "cudaGraphLaunch"); }
  int64_t nodes() const override { return nodes_; }

 private:
  cudaGraphExec_t exec_ = nullptr;
  const cudaStream_t stream_;
  int64_t nodes_ = 0;
};

/// Routes the stream's allocations to the pool.
class PoolScope {
 public:
  PoolScope(c10::DeviceIndex device, c10::MempoolId_t pool, cudaStream_t stream)
      : device_(device), pool_(pool) {
    allocator::beginAllocateToPool(device, pool,
                                   [stream](cudaStream_t other) { return other == stream; });
  }
  ~PoolScope() {
    allocator::endAllocateToPool(device_, pool_);
    allocator::releasePool(device_, pool_);  // the reference taken by begin; the arena has another
  }
  PoolScope(const PoolScope&) = delete;

 private:
  const c10::DeviceIndex device_;
  const c10::MempoolId_t pool_;
};

/// The same for pinned host memory while the stream captures. Otherwise LibTorch's host allocator
/// would query events of the capturing stream, which ends the capture, and reuse memory that a
/// graph reads.
class HostPoolScope {
 public:
  HostPoolScope(c10::MempoolId_t pool, const c10::cuda::CUDAStream& stream) : pool_(pool) {
    at::getHostAllocator(at::kCUDA)->begin_allocate_to_pool(
        pool, [own = stream.unwrap()](c10::Stream other) { return other == own; });
  }
  ~HostPoolScope() { at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(pool_); }
  HostPoolScope(const HostPoolScope&) = delete;

 private:
  const c10::MempoolId_t pool_;
};

class CudaArena final : public GraphArena {
 public:
  explicit CudaArena(at::Device device)
      : previous_(current_stream(device)),
        stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index())),
        device_(stream_.device_index()) {
    CudaArena::start_over();
    c10::cuda::setCurrentCUDAStream(stream_);
  }
  ~CudaArena() override {
    cudaStreamSynchronize(stream_);
    c10::cuda::setCurrentCUDAStream(previous_);
    CudaArena::close();
  }

  void start_over() override {
    close();
    give_back();
    pool_ = new_pool();
    allocator::createOrIncrefPool(device_, *pool_);
  }
  void give_back() override { allocator::emptyCache(); }
  void close() override {
    if (!pool_) return;
    cudaStreamSynchronize(stream_);
    allocator::releasePool(device_, *pool_);
    for (; captures_ > 0; --captures_) at::getHostAllocator(at::kCUDA)->release_pool(*pool_);
    pool_.reset();
  }
  bool captures() const override { return pool_.has_value(); }
  void run(const std::function<void()>& body) override {
    if (!pool_) return body();
    const PoolScope pool(device_, *pool_, stream_);
    body();
  }
  std::unique_ptr<CudaGraph> capture(const std::function<void()>& body) override {
    if (!pool_) return GraphArena::capture(body);
    const PoolScope pool(device_, *pool_, stream_);
    const HostPoolScope host_pool(*pool_, stream_);
    ++captures_;
    // Other threads (a checkpoint being written, the workers) may continue to call CUDA meanwhile.
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
    cudaGraph_t graph = nullptr;
    try {
      body();
    } catch (...) {
      cudaStreamEndCapture(stream_, &graph);
      if (graph != nullptr) cudaGraphDestroy(graph);
      cudaGetLastError();  // clears the error of the failed capture
      throw;
    }
    check(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
    return std::make_unique<RecordedGraph>(graph, stream_);
  }

 private:
  static c10::cuda::CUDAStream current_stream(at::Device device) {
    at::globalContext().lazyInitDevice(
        at::kCUDA);  // initialises the devices of LibTorch's allocator
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    return c10::cuda::getCurrentCUDAStream(device.index());
  }

  const c10::cuda::CUDAStream previous_, stream_;
  const c10::DeviceIndex device_;
  std::optional<c10::MempoolId_t> pool_;
  int64_t captures_ = 0;  // each has a reference to the host allocator's pool
};

#endif

std::map<c10::DeviceType, MakeGraphArena>& makers() {
  static std::map<c10::DeviceType, MakeGraphArena> makers = {
#ifdef LFT_HAVE_CUDA
      {c10::DeviceType::CUDA,
       [](at::Device device) -> std::unique_ptr<GraphArena> {
         return std::make_unique<CudaArena>(device);
       }},
#endif
  };
  return makers;
}

}  // namespace

std::unique_ptr<CudaGraph> GraphArena::capture(const std::function<void()>&) {
  throw Error(ErrorKind::kInternal, "GraphArena: nothing to capture with");
}

void register_graph_arena(c10::DeviceType type, MakeGraphArena make) { makers()[type] = make; }

bool records_graphs(at::Device device) { return makers().contains(device.type()); }

std::unique_ptr<GraphArena> make_graph_arena(at::Device device) {
  const auto found = makers().find(device.type());
  return found == makers().end() ? std::make_unique<GraphArena>() : found->second(device);
}

}  // namespace lft::train
