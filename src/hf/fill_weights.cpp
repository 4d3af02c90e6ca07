#include "src/hf/fill_weights.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <mutex>
#include <thread>

#include "kernels/common/error.h"
#include "models/ops/core/parallel.h"
#include "src/hf/fill_weights_device.h"
#include "src/hf/fill_weights_host.h"
#include "src/hf/model_dir.h"
#include "src/hf/piece_filler.h"
#include "src/hf/weights.h"

namespace lft::hf {
namespace {

/// Pieces in the order of their file offsets.
std::vector<WeightPiece> cut(const std::vector<WeightJob>& jobs, int64_t piece_bytes) {
  std::vector<size_t> order(jobs.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(jobs[a].file->path(), jobs[a].info->offset) <
           std::pair(jobs[b].file->path(), jobs[b].info->offset);
  });
  std::vector<WeightPiece> pieces;
  for (const size_t i : order) {
    const WeightJob& job = jobs[i];
    const int64_t length =
        job.take ? job.info->numel() : piece_bytes / io::dtype_size(job.info->dtype);
    const int64_t end = job.take ? length : job.begin + job.target.numel();
    for (int64_t begin = job.begin; begin < end; begin += length)
      pieces.push_back({i, begin, std::min(length, end - begin)});
  }
  return pieces;
}

/// The flat index of the first weight that does not fit the target; -1 without one.
int64_t first_beyond(const WeightJob& job, const at::Tensor& stored) {
  const bool narrows = job.target.scalar_type() == at::kHalf;
  return narrows ? first_non_finite(stored.to(at::kHalf)) : -1;
}

/// Finds and reports the error in a tensor that is known to contain an invalid weight: in the whole
/// tensor if the job reads a part of it.
[[noreturn]] void refuse_weight(const WeightJob& job) {
  const at::Tensor stored = read_tensor(*job.file, job.file->info(job.info->name));
  refuse_non_finite(stored, job.name, job.file->path());
  const int64_t index = first_beyond(job, stored);
  if (index < 0) {
    refuse(ErrorKind::kInput, "a weight file changed while it was read",
           job.file->path() + ": " + job.name, "finite weights, after others",
           "the same bytes at every read", "run again when no other process writes to the file");
  }
  refuse(ErrorKind::kInput, "a weight does not fit fp16", job.file->path() + ": " + job.name,
         std::string(io::dtype_name(job.info->dtype)) + " at flat index " + std::to_string(index),
         "at most 65504", "set model.base_dtype to bf16 or fp32");
}

/// The error of the first faulty job is reported, so that messages do not depend on timing.
class FirstFault {
 public:
  /// Uses the exception in flight; without one, the job's weights are at fault.
  void keep(size_t job) {
    const std::lock_guard lock(mutex_);
    if (job >= job_) return;
    job_ = job;
    error_ = std::current_exception();
  }
  bool is_behind(size_t job) const { return job >= job_; }
  void rethrow(const std::vector<WeightJob>& jobs) const {
    if (error_) std::rethrow_exception(error_);
    if (job_ < jobs.size()) refuse_weight(jobs[job_]);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
  std::atomic<size_t> job_ = SIZE_MAX;
};

uint64_t hand_over(const WeightJob& job) {
  const at::Tensor stored = read_tensor(*job.file, *job.info);
  if (first_non_finite(stored) >= 0 || first_beyond(job, stored) >= 0) refuse_weight(job);
  job.take(stored);
  return placed_digest(stored.const_data_ptr(), stored.nbytes(), 0);
}

uint64_t bytes_of(const std::vector<WeightJob>& jobs) {
  uint64_t bytes = 0;
  for (const WeightJob& job : jobs) bytes += job.info->bytes;
  return bytes;
}

}  // namespace

/// One thread per core, up to eight: each reads cached data at a core's speed, and two already
/// saturate a disk (more threads or kernel read advice gained nothing).
unsigned fill_threads(uint64_t bytes) {
  constexpr uint64_t kWorthThreads = 64u << 20;
  return bytes < kWorthThreads ? 1 : std::clamp(std::thread::hardware_concurrency(), 2u, 8u);
}

std::vector<uint64_t> fill_weights(const std::vector<WeightJob>& jobs, const FillOptions& options) {
  std::vector<std::atomic<uint64_t>> digests(jobs.size());
  const FillPlan plan{jobs, cut(jobs, options.piece_bytes), options, digests};
  at::Device device = at::kCPU;
  for (const WeightJob& job : jobs) {
    if (!job.take) device = job.target.device();
  }
  std::optional<DeviceRange> range;
  if (!device.is_cpu() || options.through_ring) range.emplace(plan, device);

  std::atomic<size_t> next{0};
  FirstFault fault;
  const auto work = [&] {
    const at::NoGradGuard no_grad;
    ops::stay_single_threaded();
    // A new thread uses device 0, where its first call would create a context.
    if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
    try {
      const std::unique_ptr<PieceFiller> filler = range ? range->filler() : host_filler(plan);
      for (size_t i = next++; i < plan.pieces.size(); i = next++) {
        const size_t job = plan.pieces[i].job;
        if (fault.is_behind(job)) continue;
        try {
          if (jobs[job].take) {
            digests[job] = hand_over(jobs[job]);
          } else if (!filler->fill(i)) {
            fault.keep(job);
          }
        } catch (...) {
          fault.keep(job);
        }
      }
      filler->finish();
    } catch (...) {
      fault.keep(jobs.size());
    }
  };
  {
    std::vector<std::jthread> pool;
    const unsigned threads = options.threads > 0 ? options.threads : fill_threads(bytes_of(jobs));
    for (unsigned i = 0; i < threads; ++i) pool.emplace_back(work);
  }
  if (range) {
    for (const size_t piece : range->bad_pieces()) fault.keep(plan.pieces[piece].job);
  }
  fault.rethrow(jobs);
  return {digests.begin(), digests.end()};
}

}  // namespace lft::hf
