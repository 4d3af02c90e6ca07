#include "src/train/cuda_graph.h"

#include "kernels/common/error.h"
#ifdef LFT_HAVE_CUDA
#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <optional>

#include "kernels/common/launch.h"
#endif

namespace lft {

#ifdef LFT_HAVE_CUDA

namespace {
namespace allocator = c10::cuda::CUDACachingAllocator;

/// Never the same twice: a pool that is given back lives on as long as something lies in it (cuBLAS keeps its workspaces), and LibTorch
/// asserts that nobody takes it up again.
c10::MempoolId_t new_pool() {
  static std::atomic<uint64_t> next = uint64_t{1} << 40;  // LibTorch's own count up from 1
  return {0, next++};
}

/// As check_cuda, and takes the error off the thread, where LibTorch would find it behind its next launch.
void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) cudaGetLastError();
  check_cuda(status, what);
}
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
  std::optional<c10::MempoolId_t> pool;
};

namespace {

/// Sends the stream's allocations to the pool.
class PoolScope {
 public:
  PoolScope(c10::DeviceIndex device, c10::MempoolId_t pool, cudaStream_t stream) : device_(device), pool_(pool) {
    allocator::beginAllocateToPool(device, pool, [stream](cudaStream_t other) { return other == stream; });
  }
  ~PoolScope() {
    allocator::endAllocateToPool(device_, pool_);
    allocator::releasePool(device_, pool_);  // the reference that begin took; the arena holds one of its own
  }
  PoolScope(const PoolScope&) = delete;

 private:
  const c10::DeviceIndex device_;
  const c10::MempoolId_t pool_;
};

}  // namespace

CudaGraph::CudaGraph(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CudaGraph::~CudaGraph() = default;
void CudaGraph::replay() { check(cudaGraphLaunch(impl_->exec, impl_->stream), "cudaGraphLaunch"); }
int64_t CudaGraph::nodes() const { return impl_->nodes; }

GraphArena::GraphArena(at::Device device) {
  if (!device.is_cuda()) return;
  at::globalContext().lazyInitDevice(at::kCUDA);  // LibTorch's allocator knows its devices from then on
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  const c10::cuda::CUDAStream previous = c10::cuda::getCurrentCUDAStream(device.index());
  const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index());
  impl_ = std::make_unique<Impl>(Impl{.device = stream.device_index(), .previous = previous, .stream = stream, .pool = {}});
  start_over();
  c10::cuda::setCurrentCUDAStream(stream);
}

GraphArena::~GraphArena() {
  if (!impl_) return;
  cudaStreamSynchronize(impl_->stream);
  c10::cuda::setCurrentCUDAStream(impl_->previous);
  close();
}

void GraphArena::start_over() {
  if (!impl_) return;
  close();
  give_back();
  impl_->pool = new_pool();
  allocator::createOrIncrefPool(impl_->device, *impl_->pool);
}

void GraphArena::give_back() {
  if (impl_) allocator::emptyCache();
}

void GraphArena::close() {
  if (!captures()) return;
  cudaStreamSynchronize(impl_->stream);
  allocator::releasePool(impl_->device, *impl_->pool);
  impl_->pool.reset();
}

bool GraphArena::captures() const { return impl_ && impl_->pool; }

void GraphArena::run(const std::function<void()>& body) {
  if (!captures()) return body();
  const PoolScope pool(impl_->device, *impl_->pool, impl_->stream);
  body();
}

std::unique_ptr<CudaGraph> GraphArena::capture(const std::function<void()>& body) {
  if (!captures()) throw Error(ErrorKind::kInternal, "GraphArena: nothing to capture with");
  const PoolScope pool(impl_->device, *impl_->pool, impl_->stream);
  // Other threads (a checkpoint being written, the workers) may go on calling CUDA meanwhile.
  check(cudaStreamBeginCapture(impl_->stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  cudaGraph_t graph = nullptr;
  try {
    body();
  } catch (...) {
    cudaStreamEndCapture(impl_->stream, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();  // what the broken capture left behind
    throw;
  }
  check(cudaStreamEndCapture(impl_->stream, &graph), "cudaStreamEndCapture");
  auto result = std::make_unique<CudaGraph::Impl>();
  result->stream = impl_->stream;
  size_t nodes = 0;
  cudaGraphGetNodes(graph, nullptr, &nodes);
  result->nodes = static_cast<int64_t>(nodes);
  const cudaError_t made = cudaGraphInstantiate(&result->exec, graph, 0);
  cudaGraphDestroy(graph);
  check(made, "cudaGraphInstantiate");
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
void GraphArena::start_over() {}
void GraphArena::give_back() {}
void GraphArena::close() {}
bool GraphArena::captures() const { return false; }
void GraphArena::run(const std::function<void()>& body) { body(); }
std::unique_ptr<CudaGraph> GraphArena::capture(const std::function<void()>&) {
  throw Error(ErrorKind::kInternal, "GraphArena: nothing to capture with");
}

#endif

}  // namespace lft
