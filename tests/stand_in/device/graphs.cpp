// Graphs of the simulated device: the launches of a capture, replayed in order.
#include <c10/core/impl/VirtualGuardImpl.h>
#include <sys/mman.h>

#include "kernels/emulation/cuda_runtime_api.h"
#include "src/train/machine/cuda_graph.h"
#include "stand_in/device/backend.h"
#include "stand_in/device/memory.h"

namespace lft::test::stand_in {
using namespace lft::train;
namespace {

class Graph final : public CudaGraph {
 public:
  explicit Graph(std::vector<std::function<void()>> launches) : launches_(std::move(launches)) {}
  void replay() override {
    refuse_in_capture("cudaGraphLaunch");
    count(&Counts::launches);
    const Access access;
    for (const std::function<void()>& launch : launches_) launch();
  }
  int64_t nodes() const override { return static_cast<int64_t>(launches_.size()); }

 private:
  const std::vector<std::function<void()>> launches_;
};

class Arena final : public GraphArena {
 public:
  explicit Arena(at::Device device)
      : stream_(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device)),
        previous_(c10::impl::VirtualGuardImpl(device.type()).exchangeStream(stream_)) {
    Arena::start_over();
  }
  ~Arena() override {
    c10::impl::VirtualGuardImpl(stream_.device_type()).exchangeStream(previous_);
    Arena::close();
  }

  void start_over() override {
    close();
    give_back();
    pool_ = new_pool();
  }
  void give_back() override { empty_pool(kDefaultPool); }
  void close() override {
    if (pool_ != kDefaultPool) empty_pool(std::exchange(pool_, kDefaultPool));
  }
  bool captures() const override { return pool_ != kDefaultPool; }
  void run(const std::function<void()>& body) override {
    const Pool pool(stream_.id(), pool_);
    body();
  }
  /// A recorded launch must have no effect yet. It runs here, since later ones need its sizes, and
  /// then all its writes are undone.
  std::unique_ptr<CudaGraph> capture(const std::function<void()>& body) override {
    const Pool pool(stream_.id(), pool_);
    const std::vector<char> before = region_snapshot();
    start_recording(stream_.id());
    try {
      body();
    } catch (...) {
      end_recording();
      restore_region(before);
      throw;
    }
    Recording recording = end_recording();
    restore_region(before);
    TORCH_CHECK(recording.fault.empty(), recording.fault,
                ": operation not permitted when stream is capturing");
    return std::make_unique<Graph>(std::move(recording.launches));
  }

 private:
  struct Pool {
    Pool(c10::StreamId stream, int64_t pool) : stream(stream) { use_pool(stream, pool); }
    ~Pool() { use_pool(stream, kDefaultPool); }
    Pool(const Pool&) = delete;
    const c10::StreamId stream;
  };

  const c10::Stream stream_, previous_;
  int64_t pool_ = kDefaultPool;
};

/// Whether a word of a launch's arguments is the address of host-only memory.
bool is_host_address(uint64_t word) {
  constexpr uint64_t kPage = 4096, kLeast = uint64_t{1} << 32, kMost = uint64_t{1} << 47;
  if (word < kLeast || word >= kMost) return false;  // numbers; the program is at low addresses
  void* const address = reinterpret_cast<void*>(word);
  if (is_device_address(address) || is_pinned_address(address)) return false;
  return msync(reinterpret_cast<void*>(word / kPage * kPage), kPage, MS_ASYNC) == 0;  // mapped
}

void check_argument(const void* bytes, size_t size) {
  for (size_t at = 0; at + sizeof(uint64_t) <= size; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, static_cast<const char*>(bytes) + at, sizeof word);
    TORCH_CHECK(!is_host_address(word),
                "an illegal memory access was encountered: a kernel got an address of the host's");
    count(&Counts::bytes, block_bytes(reinterpret_cast<void*>(word)));
  }
}

const bool graphs_registered = [] {
  register_graph_arena(device().type(), [](at::Device on) -> std::unique_ptr<GraphArena> {
    return std::make_unique<Arena>(on);
  });
  emulation::on_launch = launch_kernel;
  emulation::on_argument = check_argument;
  return true;
}();

}  // namespace
}  // namespace lft::test::stand_in
