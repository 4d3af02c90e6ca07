// Frozen decoder weights that the processes of a machine share: each stores a slice of the bytes of
// every block and reads the others' slices. A block is gathered when a product needs one of its
// weights, in any pass, while the next block is prefetched; at most two are in memory. Processes do
// not wait for each other. Threads may use weights of one block at a time.
#pragma once
#include <future>
#include <memory>
#include <mutex>
#include <optional>

#include "models/ops/weight/weight.h"

namespace c10 {
class Event;
class Stream;
}  // namespace c10

namespace lft::ops {

/// Memory that several processes of a machine share: each writes its part, all can read. Collective
/// calls, which all processes make, are marked.
class ShardMemory {
 public:
  virtual ~ShardMemory() = default;
  virtual int64_t holders() const = 0;
  virtual int64_t own() const = 0;  // the rank of this process
  /// Allocates this process's part, uint8 [bytes], on the device of the weights. Collective, once,
  /// with one number.
  virtual at::Tensor hold(int64_t bytes) = 0;
  /// The sum of each number over all processes. Collective, after they have written their parts.
  virtual std::vector<uint64_t> sum(const std::vector<uint64_t>& own) = 0;
  /// Copies bytes of the part of a process, from `begin` on, to `to`, uint8; asynchronous on a GPU,
  /// in the current stream.
  virtual void read(int64_t holder, int64_t begin, at::Tensor to) = 0;
};

class ShardedBlocks : public torch::CustomClassHolder {
 public:
  ShardedBlocks(std::shared_ptr<ShardMemory> memory, int64_t blocks);
  ~ShardedBlocks() override;

  /// Reserves bytes of a block and returns their offset in it. Only before hold().
  int64_t add(int64_t block, int64_t bytes);
  /// Allocates this process's part. Collective.
  void hold();

  /// The bytes of a range of a block that this process stores.
  struct Held {
    int64_t first = 0;  // offset from `begin`
    at::Tensor bytes;   // empty if it stores none
  };
  Held held(int64_t block, int64_t begin, int64_t bytes) const;
  /// All bytes of the block, valid until another block is gathered.
  const at::Tensor& whole(int64_t block);
  at::Device device() const { return own_.device(); }

 private:
  struct Gathered {
    int64_t block = -1;
    at::Tensor bytes;
    std::future<void> read = {};             // on a CPU
    std::shared_ptr<c10::Event> there = {};  // elsewhere
    void wait();
  };
  Gathered gather(int64_t block);
  int64_t slice(int64_t block) const;  // bytes of a block per process

  const std::shared_ptr<ShardMemory> memory_;
  std::vector<int64_t> bytes_, begins_;  // per block; offset of its slices in the parts
  at::Tensor own_;
  std::unique_ptr<c10::Stream> stream_;  // for gathering; null on a CPU
  std::mutex mutex_;                     // protects the rest
  Gathered here_, next_;
};

/// A weight of a block: dense, or quantized if `shapes` are given.
class ShardedWeight : public CodedWeight {
 public:
  /// Must be created before hold(). [out, in] of `dtype`, or quantized with another storage.
  ShardedWeight(c10::intrusive_ptr<ShardedBlocks> blocks, int64_t block, at::IntArrayRef shape_oi,
                at::ScalarType dtype, BaseStorage storage);

  /// The elements of a dense weight that this process stores, from `first` on, to be filled.
  struct Elements {
    int64_t first = 0;
    at::Tensor values;  // one dimension
  };
  Elements elements() const;
  /// Stores this process's slice of a whole weight [o, i] with finite values, which is quantized
  /// first if the storage is.
  void take(const at::Tensor& weight_oi);

  BaseStorage kind() const override;
  std::vector<std::pair<std::string, at::Tensor>> parts() const override { return {}; }
  c10::intrusive_ptr<CodedWeight> with(const std::vector<at::Tensor>& parts) const override;
  at::Device device() const override { return blocks_->device(); }
  at::Tensor dense(at::ScalarType dtype) const override;
  bool can_alias_as(at::ScalarType dtype) const override;
  at::Tensor product(const at::Tensor& x_ti, const at::Tensor& bias_o) const override;
  at::Tensor product_backward(const at::Tensor& dy_to) const override;

 private:
  /// Its tensors in the gathered block.
  std::vector<at::Tensor> gathered() const;

  const c10::intrusive_ptr<ShardedBlocks> blocks_;
  const int64_t block_;
  c10::intrusive_ptr<CodedWeight> codes_;  // without values; null: dense
  std::vector<at::Tensor> shapes_;         // its tensors' shapes, without values
  std::vector<int64_t> begins_;            // their offsets in the block
};

}  // namespace lft::ops
