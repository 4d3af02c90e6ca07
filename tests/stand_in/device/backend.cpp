// Memory, streams and events of the simulated device, and its hooks in LibTorch.
#include "stand_in/device/backend.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

#include "src/train/machine/device.h"
#include "stand_in/device/memory.h"

namespace lft::test::stand_in {
namespace {

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;

struct State {
  std::recursive_mutex mutex;
  Counts counts, in_captures;
  std::map<c10::StreamId, int64_t> pools;
  bool recording = false;
  Recording record;
};
State& state() {
  static State& state = *new State;
  return state;
}

thread_local c10::StreamId stream_now = 0;
thread_local c10::DeviceIndex index_now = 0;  // a new thread's current device is 0

c10::DeviceIndex used_index() {
  static const auto index = [] {
    const char* const text = std::getenv("LFT_STAND_IN_INDEX");
    return static_cast<c10::DeviceIndex>(text == nullptr ? 0 : std::atoi(text));
  }();
  return index;
}

/// A call that creates a context, or needs one, on the device of this index.
void touch(c10::DeviceIndex index, const char* call) {
  if (index == used_index()) return;
  std::fprintf(stderr, "the stand-in: %s on device %d in a process that uses device %d\n", call,
               static_cast<int>(index), static_cast<int>(used_index()));
  std::abort();
}

/// cudaSetDevice, as LibTorch calls it: without effect if the device is current.
void set_index(c10::DeviceIndex index, const char* call) {
  if (index == index_now) return;
  touch(index, call);
  index_now = index;
}

/// As CUDAGuardImpl does for an event: the device of the call is set, and then the one before.
class OnDevice {
 public:
  OnDevice(c10::DeviceIndex index, const char* call) : before_(index_now), call_(call) {
    set_index(index, call);
  }
  ~OnDevice() { set_index(before_, call_); }
  OnDevice(const OnDevice&) = delete;

 private:
  const c10::DeviceIndex before_;
  const char* const call_;
};

class Memory : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, device()};
    const int64_t before = memory_use().taken_from_device;
    void* block = take_block(current_pool(), bytes);
    if (block == nullptr &&
        current_pool() == kDefaultPool) {  // LibTorch never frees blocks of another pool
      empty_pool(kDefaultPool);
      block = take_block(current_pool(), bytes);
    }
    const MemoryUse use = memory_use();
    if (block == nullptr) {
      c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(bytes), use.allocated, use.reserved,
                                       device());
      TORCH_CHECK_WITH(OutOfMemoryError, false,
                       "the stand-in device is out of memory. Tried to allocate ", bytes, " bytes");
    }
    count(&Counts::allocations);
    count(&Counts::device_allocations, use.taken_from_device - before);
    c10::reportMemoryUsageToProfiler(block, static_cast<int64_t>(bytes), use.allocated,
                                     use.reserved, device());
    return {block, new Taken{block, static_cast<int64_t>(bytes)}, &give_back, device()};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    const Access access;
    default_copy_data(to, from, bytes);
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override { empty_pool(kDefaultPool); }
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override {
    const MemoryUse use = memory_use();
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocated_bytes[0].current = use.allocated;
    stats.allocated_bytes[0].peak = use.allocated_peak;
    stats.reserved_bytes[0].current = use.reserved;
    stats.reserved_bytes[0].peak = use.reserved_peak;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override { reset_memory_peaks(); }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex) override {
    const auto total = static_cast<size_t>(memory_limit());
    return {total - static_cast<size_t>(memory_use().reserved), total};
  }

 private:
  struct Taken {
    void* block;
    int64_t bytes;
  };
  static void give_back(void* context) {
    auto* const taken = static_cast<Taken*>(context);
    return_block(taken->block);
    const MemoryUse use = memory_use();
    c10::reportMemoryUsageToProfiler(taken->block, -taken->bytes, use.allocated, use.reserved,
                                     device());
    delete taken;
  }
};

/// Host memory for copies that do not block.
class PinnedMemory : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, c10::Device(c10::DeviceType::CPU)};
    refuse_in_capture("cudaHostAlloc");
    void* const data = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    const std::lock_guard lock(mutex());
    ranges()[static_cast<char*>(data) + bytes] = static_cast<char*>(data);
    return {data, data, &give_back, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
  static bool owns(const void* address) {
    const std::lock_guard lock(mutex());
    const auto found = ranges().upper_bound(static_cast<char*>(const_cast<void*>(address)));
    return found != ranges().end() && found->second <= static_cast<const char*>(address);
  }

 private:
  static void give_back(void* data) {
    spoil_recording("pinned memory was freed");
    {
      const std::lock_guard lock(mutex());
      std::erase_if(ranges(), [&](const auto& range) { return range.second == data; });
    }
    std::free(data);
  }
  static std::mutex& mutex() {
    static std::mutex& mutex = *new std::mutex;
    return mutex;
  }
  static std::map<char*, char*>& ranges() {  // their ends and beginnings
    static std::map<char*, char*>& ranges = *new std::map<char*, char*>;
    return ranges;
  }
};

Memory memory;
PinnedMemory pinned_memory;

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device to) const override {
    const c10::Device before = getDevice();
    setDevice(to);
    return before;
  }
  c10::Device getDevice() const override { return {kType, index_now}; }
  void setDevice(c10::Device to) const override { set_index(to.index(), "cudaSetDevice"); }
  /// The end of a DeviceGuard: LibTorch creates no context for it.
  void uncheckedSetDevice(c10::Device to) const noexcept override { index_now = to.index(); }
  c10::Stream getStream(c10::Device) const override { return stream(stream_now); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream(0); }
  c10::Stream getStreamFromGlobalPool(c10::Device on, bool) const override {
    touch(on.index(), "cudaStreamCreateWithPriority");
    static std::atomic<c10::StreamId> next = 1;
    return stream(next++);
  }
  c10::Stream exchangeStream(c10::Stream to) const override {
    return stream(std::exchange(stream_now, to.id()));
  }
  void* getStreamNativeHandle(const c10::Stream of) const override {
    return reinterpret_cast<void*>(of.id());
  }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    const OnDevice on(stream.device_index(), "cudaEventRecord");
    if (*event == nullptr) *event = new char;
  }
  void destroyEvent(void* event, const c10::DeviceIndex index) const noexcept override {
    if (event == nullptr) return;
    const OnDevice on(index, "cudaEventDestroy");
    delete static_cast<char*>(event);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    const OnDevice on(stream.device_index(), "cudaStreamWaitEvent");
  }
  bool queryEvent(void*) const override { return true; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override { wait("cudaStreamSynchronize"); }
  void synchronizeEvent(void*) const override { wait("cudaEventSynchronize"); }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    const OnDevice on(index, "cudaDeviceSynchronize");
    wait("cudaDeviceSynchronize");
  }
  c10::DeviceIndex deviceCount() const noexcept override { return used_index() + 1; }
  c10::DeviceCapability getDeviceCapability(c10::Device) const override { return {}; }

 private:
  static c10::Stream stream(c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, device(), id);
  }
  static void wait(const char* what) {
    refuse_in_capture(what);
    count(&Counts::waits);
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex index) const override { return index == used_index(); }
  c10::DeviceIndex deviceCount() const override { return used_index() + 1; }
  c10::DeviceIndex getCurrentDevice() const override { return index_now; }
  void setCurrentDevice(c10::DeviceIndex index) const override {
    set_index(index, "cudaSetDevice");
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    const c10::DeviceIndex before = index_now;
    set_index(index, "cudaSetDevice");
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return std::exchange(index_now, index);
  }
  bool isPinnedPtr(const void* data) const override { return PinnedMemory::owns(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_memory; }
  c10::Device getDeviceFromPtr(void*) const override { return device(); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    static const at::Generator generator =
        at::detail::createCPUGenerator();  // ops run as the CPU's
    return generator;
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

const bool registered = [] {
  if (used_index() > 0) train::take_local_gpu(used_index());
  c10::register_privateuse1_backend("stand_in");
  c10::SetAllocator(kType, &memory);
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

}  // namespace

c10::Device device() { return {kType, used_index()}; }

void count(int64_t Counts::*what, int64_t times) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.counts.*what += times;
  if (is_recording()) s.in_captures.*what += times;
}

Counts counts() {
  const std::lock_guard lock(state().mutex);
  return state().counts;
}
Counts counts_in_captures() {
  const std::lock_guard lock(state().mutex);
  return state().in_captures;
}

c10::StreamId current_stream() { return stream_now; }

int64_t current_pool() {
  const std::lock_guard lock(state().mutex);
  const auto found = state().pools.find(stream_now);
  return found == state().pools.end() ? kDefaultPool : found->second;
}
void use_pool(c10::StreamId stream, int64_t pool) {
  const std::lock_guard lock(state().mutex);
  state().pools[stream] = pool;
}

void start_recording(c10::StreamId stream) {
  const std::lock_guard lock(state().mutex);
  state().recording = true;
  state().record = {.stream = stream};
}
void spoil_recording(const std::string& what) {
  const std::lock_guard lock(state().mutex);
  if (is_recording()) state().record.fault = what;
}
Recording end_recording() {
  const std::lock_guard lock(state().mutex);
  state().recording = false;
  return std::move(state().record);
}
bool is_recording() {
  const std::lock_guard lock(state().mutex);
  return state().recording && state().record.stream == stream_now;
}

void launch_kernel(std::function<void()> run) {
  touch(index_now, "a launch");
  launch(std::move(run));
}

void launch(std::function<void()> run) {
  count(&Counts::launches);
  {
    const Access access;
    run();
  }
  if (is_recording()) record(std::move(run));
}

void record(std::function<void()> launched) {
  const std::lock_guard lock(state().mutex);
  state().record.launches.push_back(std::move(launched));
}

void refuse_in_capture(const std::string& what) {
  TORCH_CHECK(!is_recording(), what, ": operation not permitted when stream is capturing");
}

at::Tensor as_cpu(const at::Tensor& tensor) {
  if (tensor.numel() == 0) {
    return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
  }
  return at::from_blob(const_cast<void*>(tensor.const_data_ptr()), tensor.sizes(), tensor.strides(),
                       tensor.options().device(at::kCPU).requires_grad(false));
}

void count_bytes(const std::vector<at::Tensor>& used) {
  for (const at::Tensor& tensor : used)
    count(&Counts::bytes, static_cast<int64_t>(tensor.nbytes()));
}

bool is_pinned_address(const void* address) { return PinnedMemory::owns(address); }

}  // namespace lft::test::stand_in
