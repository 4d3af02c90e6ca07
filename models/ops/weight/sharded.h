// Frozen weights of a decoder's blocks that the processes of a machine hold together: each has a
// slice of every block's bytes and reads the others'. A block is gathered where a product asks for
// one of its weights, in whichever pass that is, and the one that should come next is gathered
// meanwhile; two are there at a time. No process waits for another. One thread at a time asks.
#pragma once
#include <future>
#include <memory>
#include <optional>

#include "models/ops/weight/weight.h"

namespace c10 {
class Event;
class Stream;
}  // namespace c10

namespace lft::ops {

/// Memory that several processes of a machine hold together, each its part, and all read. Those
/// calls that say so are made by all of them.
class ShardMemory {
 public:
  virtual ~ShardMemory() = default;
  virtual int64_t holders() const = 0;
  virtual int64_t own() const = 0;  // this process among them
  /// This process's part, uint8 [bytes], where weights are; once, by all, with one number.
  virtual at::Tensor hold(int64_t bytes) = 0;
  /// Of each number the sum over all processes, by all: when they have written what they hold.
  virtual std::vector<uint64_t> sum(const std::vector<uint64_t>& own) = 0;
  /// Fills `to`, uint8, with bytes of a holder's part, from `begin` on; on a GPU in the current
  /// stream, without waiting.
  virtual void read(int64_t holder, int64_t begin, at::Tensor to) = 0;
};

class ShardedBlocks : public torch::CustomClassHolder {
 public:
  ShardedBlocks(std::shared_ptr<ShardMemory> memory, int64_t blocks);
  ~ShardedBlocks() override;

  /// Room for so many bytes of a block: where they begin in it. Until hold().
  int64_t add(int64_t block, int64_t bytes);
  /// Takes this process's memory; by all.
  void hold();

  /// Of `bytes` bytes from `begin` on in a block those that this process holds.
  struct Held {
    int64_t first = 0;  // of them, counted from `begin`
    at::Tensor bytes;   // empty where it holds none
  };
  Held held(int64_t block, int64_t begin, int64_t bytes) const;
  /// The whole block's bytes, until another block is asked for.
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
  int64_t slice(int64_t block) const;  // bytes of a block that each process holds

  const std::shared_ptr<ShardMemory> memory_;
  std::vector<int64_t> bytes_, begins_;  // of each block; where its slices begin in the parts
  at::Tensor own_;
  std::unique_ptr<c10::Stream> stream_;  // of what is gathered; null on a CPU
  Gathered here_, next_;
};

/// A weight among a block's bytes: dense, or the codes that `shapes` are of.
class ShardedWeight : public CodedWeight {
 public:
  /// Before hold(). [out, in] of `dtype`, or with a storage in codes.
  ShardedWeight(c10::intrusive_ptr<ShardedBlocks> blocks, int64_t block, at::IntArrayRef shape_oi,
                at::ScalarType dtype, BaseStorage storage);

  /// What this process holds of a dense weight: elements from `first` on, to be filled.
  struct Elements {
    int64_t first = 0;
    at::Tensor values;  // one dimension
  };
  Elements elements() const;
  /// Keeps this process's slice of a whole weight [o, i], finite, which is quantised first where
  /// there are codes.
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
  /// The tensors that it consists of, in the gathered block.
  std::vector<at::Tensor> gathered() const;

  const c10::intrusive_ptr<ShardedBlocks> blocks_;
  const int64_t block_;
  c10::intrusive_ptr<CodedWeight> codes_;  // without values; null: dense
  std::vector<at::Tensor> shapes_;         // of its tensors, without values
  std::vector<int64_t> begins_;            // of them in the block
};

}  // namespace lft::ops
