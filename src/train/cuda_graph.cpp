#include "src/train/cuda_graph.h"

#include "kernels/common/error.h"
#ifdef LFT_HAVE_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include "kernels/common/launch.h"
#endif

namespace lft {

#ifdef LFT_HAVE_CUDA

namespace {
namespace allocator = c10::cuda::CUDACachingAllocator;
constexpr c10::MempoolId_t kPool = {0, uint64_t{1} << 40};  // LibTorch's own count up from 1
}  // namespace

struct CudaGraph::Impl {
  cudaGraphExec_t exec = nullptr;
  cudaStream_t stream = nullptr;
  int64_t nodes = 0;
  ~Impl() {
    if (exec != nullptr) cudaGraphExecDestroy(exec);
  }
};

struct GraphArena::Impl {
  c10::DeviceIndex device;
  c10::cuda::CUDAStream previous, stream;
};

namespace {

/// Sends the stream's allocations to the pool.
class PoolScope {
 public:
  PoolScope(c10::DeviceIndex device, cudaStream_t stream) : device_(device) {
    allocator::beginAllocateToPool(device, kPool, [stream](cudaStream_t other) { return other == stream; });
  }
  ~PoolScope() {
    allocator::endAllocateToPool(device_, kPool);
    allocator::releasePool(device_, kPool);  // the reference that begin took; the arena holds one of its own
  }
  PoolScope(const PoolScope&) = delete;

 private:
  c10::DeviceIndex device_;
};

}  // namespace

CudaGraph::CudaGraph(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CudaGraph::~CudaGraph() = default;
void CudaGraph::replay() { check_cuda(cudaGraphLaunch(impl_->exec, impl_->stream), "cudaGraphLaunch"); }
int64_t CudaGraph::nodes() const { return impl_->nodes; }

GraphArena::GraphArena(at::Device device) {
  if (!device.is_cuda()) return;
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  allocator::emptyCache();
  const c10::cuda::CUDAStream previous = c10::cuda::getCurrentCUDAStream(device.index());
  const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index());
  impl_ = std::make_unique<Impl>(Impl{.device = stream.device_index(), .previous = previous, .stream = stream});
  c10::cuda::setCurrentCUDAStream(stream);
  allocator::createOrIncrefPool(impl_->device, kPool);
}

GraphArena::~GraphArena() {
  if (!impl_) return;
  cudaStreamSynchronize(impl_->stream);
  c10::cuda::setCurrentCUDAStream(impl_->previous);
  allocator::releasePool(impl_->device, kPool);
}

bool GraphArena::captures() const { return impl_ != nullptr; }

void GraphArena::run(const std::function<void()>& body) {
  if (!impl_) return body();
  const PoolScope pool(impl_->device, impl_->stream);
  body();
}

std::unique_ptr<CudaGraph> GraphArena::capture(const std::function<void()>& body) {
  if (!impl_) throw Error(ErrorKind::kInternal, "GraphArena: nothing to capture with");
  const PoolScope pool(impl_->device, impl_->stream);
  // Other threads (a checkpoint being written, the workers) may go on calling CUDA meanwhile.
  check_cuda(cudaStreamBeginCapture(impl_->stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  cudaGraph_t graph = nullptr;
  try {
    body();
  } catch (...) {
    cudaStreamEndCapture(impl_->stream, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();  // what the broken capture left behind
    throw;
  }
  check_cuda(cudaStreamEndCapture(impl_->stream, &graph), "cudaStreamEndCapture");
  auto result = std::make_unique<CudaGraph::Impl>();
  result->stream = impl_->stream;
  size_t nodes = 0;
  cudaGraphGetNodes(graph, nullptr, &nodes);
  result->nodes = static_cast<int64_t>(nodes);
  const cudaError_t made = cudaGraphInstantiate(&result->exec, graph, 0);
  cudaGraphDestroy(graph);
  check_cuda(made, "cudaGraphInstantiate");
  return std::unique_ptr<CudaGraph>(new CudaGraph(std::move(result)));
}

#else

struct CudaGraph::Impl {};
struct GraphArena::Impl {};
CudaGraph::CudaGraph(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CudaGraph::~CudaGraph() = default;
void CudaGraph::replay() {}
int64_t CudaGraph::nodes() const { return 0; }
GraphArena::GraphArena(at::Device) {}
GraphArena::~GraphArena() = default;
bool GraphArena::captures() const { return false; }
void GraphArena::run(const std::function<void()>& body) { body(); }
std::unique_ptr<CudaGraph> GraphArena::capture(const std::function<void()>&) {
  throw Error(ErrorKind::kInternal, "GraphArena: nothing to capture with");
}

#endif

}  // namespace lft
