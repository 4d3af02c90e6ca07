#include "src/dist/shard_memory.h"

#include <ATen/Functions.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "src/dist/nccl.h"

namespace lft::dist {
namespace {

/// Equal for processes that can open each other's memory: the machine's boot id and its process
/// table.
std::string machine() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  std::error_code none;
  return boot + " " + std::filesystem::read_symlink("/proc/self/ns/pid", none).string();
}

/// The processes of a run on this machine. Their exchanges are exchanges of the whole run.
struct Neighbours {
  Ranks& ranks;
  std::vector<size_t> places;  // ranks of them
  int64_t own = 0;

  std::vector<std::string> exchange(const std::string& mine) const {
    const std::vector<std::string> all = ranks.exchange(mine);
    std::vector<std::string> theirs;
    for (const size_t place : places) theirs.push_back(all[place]);
    return theirs;
  }
};

Neighbours find_neighbours(Ranks& ranks) {
  Neighbours found{.ranks = ranks, .places = {}};
  const std::vector<std::string> all = ranks.exchange(machine());
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (static_cast<int64_t>(rank) == ranks.rank()) found.own = std::ssize(found.places);
    if (all[rank] == all[static_cast<size_t>(ranks.rank())]) found.places.push_back(rank);
  }
  return found;
}

class NeighbourMemory : public ops::ShardMemory {
 public:
  explicit NeighbourMemory(Neighbours neighbours) : neighbours_(std::move(neighbours)) {}
  int64_t holders() const override { return std::ssize(neighbours_.places); }
  int64_t own() const override { return neighbours_.own; }

  std::vector<uint64_t> sum(const std::vector<uint64_t>& own) override {
    const size_t bytes = own.size() * sizeof(uint64_t);
    std::vector<uint64_t> sums(own.size(), 0), each(own.size());
    for (const std::string& text :
         neighbours_.exchange({reinterpret_cast<const char*>(own.data()), bytes})) {
      if (bytes > 0) std::memcpy(each.data(), text.data(), bytes);
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += each[i];
    }
    return sums;
  }

 protected:
  [[noreturn]] void refuse_memory(const std::string& what, const std::string& found) const {
    refuse(ErrorKind::kResource, what, "train.shard: base", found,
           "memory for this process's part of the base, which the others may open",
           "start all processes of a machine as one user in one container, free memory, or set "
           "train.shard to none");
  }
  const Neighbours neighbours_;
};

/// Pages of an unnamed file. The parts of other processes are read, not mapped, so that a process
/// is charged only for its own part.
class HostMemory : public NeighbourMemory {
 public:
  using NeighbourMemory::NeighbourMemory;
  ~HostMemory() override {
    for (const int fd : files_) close(fd);
  }

  at::Tensor hold(int64_t bytes) override {
    const auto size = static_cast<size_t>(bytes);
    const int fd = memfd_create("lft-base", MFD_CLOEXEC);
    void* at = MAP_FAILED;
    const int error = fd < 0 ? errno : posix_fallocate(fd, 0, bytes);
    if (error == 0)
      at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (at == MAP_FAILED) {
      refuse_memory("a process cannot get memory for its part of the base",
                    std::strerror(error == 0 ? errno : error));
    }
    const auto unmap = [size](void* from) { munmap(from, size); };
    const at::Tensor part = at::from_blob(at, {bytes}, unmap, at::TensorOptions(at::kByte));
    const std::string path = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(fd);
    for (const std::string& theirs : neighbours_.exchange(path)) {
      files_.push_back(open(theirs.c_str(), O_RDONLY | O_CLOEXEC));
      if (files_.back() < 0)
        refuse_memory("the memory of another process of the run cannot be opened",
                      theirs + ": " + std::strerror(errno));
    }
    neighbours_.exchange("");  // all processes have opened it
    close(fd);
    return part;
  }

  void read(int64_t holder, int64_t begin, at::Tensor to) override {
    auto* into = static_cast<char*>(to.mutable_data_ptr());
    for (auto left = static_cast<int64_t>(to.nbytes()); left > 0;) {
      const ssize_t done =
          pread(files_[static_cast<size_t>(holder)], into, static_cast<size_t>(left), begin);
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0)
        refuse_memory("the memory of another process of the run cannot be read",
                      done == 0 ? "its end" : std::strerror(errno));
      into += done;
      begin += done;
      left -= done;
    }
  }

 private:
  std::vector<int> files_;
};

class GpuMemory : public NeighbourMemory {
 public:
  GpuMemory(Neighbours neighbours, at::Device device)
      : NeighbourMemory(std::move(neighbours)),
        options_(at::TensorOptions(at::kByte).device(device)) {}

  at::Tensor hold(int64_t bytes) override {
    const at::Tensor part = at::empty({bytes}, options_);
    const std::vector<std::string> handles = neighbours_.exchange(share_gpu_memory(part));
    for (size_t holder = 0; holder < handles.size(); ++holder)
      parts_.push_back(static_cast<int64_t>(holder) == own() ? part
                                                             : opened(handles[holder], bytes));
    return part;
  }

  void read(int64_t holder, int64_t begin, at::Tensor to) override {
    to.copy_(parts_[static_cast<size_t>(holder)].narrow(0, begin, to.numel()),
             /*non_blocking=*/true);
  }

 private:
  /// Fails where the driver does not let one GPU read the other's memory.
  at::Tensor opened(const std::string& handle, int64_t bytes) const {
    try {
      return open_gpu_memory(handle, bytes, options_);
    } catch (const c10::Error& error) {
      refuse_memory("the GPU memory of another process of the run cannot be opened",
                    error.what_without_backtrace());
    }
  }

  const at::TensorOptions options_;
  std::vector<at::Tensor> parts_;
};

}  // namespace

std::shared_ptr<ops::ShardMemory> share_memory(Ranks& ranks, at::Device device) {
  Neighbours neighbours = find_neighbours(ranks);
  const bool alone = neighbours.places.size() == 1;
  std::shared_ptr<ops::ShardMemory> memory;
  if (device.is_cpu()) {
    memory = std::make_shared<HostMemory>(std::move(neighbours));
  } else {
    memory = std::make_shared<GpuMemory>(std::move(neighbours), device);
  }
  return alone ? nullptr : memory;
}

}  // namespace lft::dist
