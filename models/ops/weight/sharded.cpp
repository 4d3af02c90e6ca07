#include "models/ops/weight/sharded.h"

#include <ATen/Functions.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace lft::ops {
namespace {

constexpr int64_t kAligned = 64;  // bytes, as in LibTorch; products choose loops by alignment

int64_t aligned(int64_t bytes) { return (bytes + kAligned - 1) / kAligned * kAligned; }

}  // namespace

ShardedBlocks::ShardedBlocks(std::shared_ptr<ShardMemory> memory, int64_t blocks)
    : memory_(std::move(memory)), bytes_(static_cast<size_t>(blocks), 0) {}

/// Memory that is still written to must not be freed; on a CPU the future waits.
ShardedBlocks::~ShardedBlocks() {
  if (next_.there) next_.wait();
}

int64_t ShardedBlocks::add(int64_t block, int64_t bytes) {
  return std::exchange(bytes_[static_cast<size_t>(block)],
                       bytes_[static_cast<size_t>(block)] + aligned(bytes));
}

int64_t ShardedBlocks::slice(int64_t block) const {
  const int64_t holders = memory_->holders();
  return aligned((bytes_[static_cast<size_t>(block)] + holders - 1) / holders);
}

void ShardedBlocks::hold() {
  int64_t bytes = 0;
  for (int64_t block = 0; block < std::ssize(bytes_); ++block) {
    begins_.push_back(bytes);
    bytes += slice(block);
  }
  own_ = memory_->hold(bytes);
  if (own_.device().is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(own_.device().type());
  stream_ = std::make_unique<c10::Stream>(guard.getStreamFromGlobalPool(own_.device()));
}

ShardedBlocks::Held ShardedBlocks::held(int64_t block, int64_t begin, int64_t bytes) const {
  const int64_t size = slice(block), from = memory_->own() * size;
  const int64_t first = std::clamp(from - begin, int64_t{0}, bytes),
                end = std::clamp(from + size - begin, first, bytes);
  const int64_t place =
      begins_[static_cast<size_t>(block)] + (end > first ? begin + first - from : 0);
  return {first, own_.narrow(0, place, end - first)};
}

void ShardedBlocks::Gathered::wait() {
  if (read.valid()) read.get();
  if (!there) return;
  there->block(c10::impl::VirtualGuardImpl(bytes.device().type()).getStream(bytes.device()));
  there.reset();
}

/// On a GPU in a separate stream, after pending kernels that use the destination.
ShardedBlocks::Gathered ShardedBlocks::gather(int64_t block) {
  const int64_t size = slice(block), begin = begins_[static_cast<size_t>(block)];
  Gathered result{.block = block, .bytes = at::empty({memory_->holders() * size}, own_.options())};
  const auto read = [memory = memory_, size, begin, bytes = result.bytes] {
    for (int64_t holder = 0; holder < memory->holders(); ++holder)
      memory->read(holder, begin, bytes.narrow(0, holder * size, size));
  };
  if (stream_ == nullptr) {
    result.read = std::async(std::launch::async, read);
    return result;
  }
  const at::Device device = own_.device();
  c10::Event free(device.type());
  free.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  free.block(*stream_);
  const c10::StreamGuard current(*stream_);
  read();
  result.there = std::make_shared<c10::Event>(device.type());
  result.there->record(*stream_);
  return result;
}

const at::Tensor& ShardedBlocks::whole(int64_t block) {
  const std::lock_guard lock(mutex_);
  if (here_.block == block) return here_.bytes;
  // Passes visit blocks in order, up or down. At the ends they turn and repeat the last block.
  const int64_t turned = block - here_.block,
                next = std::abs(turned) == 1 ? block + turned : block + 1;
  const bool turns = next < 0 || next >= std::ssize(bytes_);
  Gathered last = std::exchange(here_, {});
  if (!turns) last = {};
  if (next_.block != block) {
    next_.wait();
    next_ = {};
    last = {};
    next_ = gather(block);
  }
  Gathered now = std::exchange(next_, turns ? std::move(last) : Gathered());
  if (!turns) next_ = gather(next);
  now.wait();
  here_ = std::move(now);
  return here_.bytes;
}

ShardedWeight::ShardedWeight(c10::intrusive_ptr<ShardedBlocks> blocks, int64_t block,
                             at::IntArrayRef shape_oi, at::ScalarType dtype, BaseStorage storage)
    : blocks_(std::move(blocks)), block_(block) {
  out = shape_oi[0];
  in = shape_oi[1];
  if (storage == BaseStorage::kDense) {
    shapes_.push_back(at::empty(shape_oi, at::TensorOptions(dtype).device(at::kMeta)));
  } else {
    codes_ = code_shapes(out, in, storage);
    for (const auto& [name, part] : codes_->parts()) shapes_.push_back(part);
  }
  for (const at::Tensor& shape : shapes_)
    begins_.push_back(blocks_->add(block_, static_cast<int64_t>(shape.nbytes())));
}

ShardedWeight::Elements ShardedWeight::elements() const {
  const at::Tensor& shape = shapes_.front();
  const auto [first, bytes] =
      blocks_->held(block_, begins_.front(), static_cast<int64_t>(shape.nbytes()));
  return {first / shape.element_size(), bytes.view(shape.scalar_type())};
}

void ShardedWeight::take(const at::Tensor& weight_oi) {
  std::vector<at::Tensor> parts;
  if (codes_) {
    const c10::intrusive_ptr<CodedWeight> whole = quantize(weight_oi, kind(), device());
    for (const auto& [name, part] : whole->parts()) parts.push_back(part);
    codes_ = whole->with(shapes_);  // including their other fields
  } else {
    parts.push_back(weight_oi.to(shapes_.front().scalar_type()));
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    const at::Tensor all = parts[i].contiguous().view(-1).view(at::kByte);
    const auto [first, bytes] = blocks_->held(block_, begins_[i], all.numel());
    at::Tensor(bytes).copy_(all.narrow(0, first, bytes.numel()));
  }
}

std::vector<at::Tensor> ShardedWeight::gathered() const {
  const at::Tensor& block = blocks_->whole(block_);
  std::vector<at::Tensor> parts;
  for (size_t i = 0; i < shapes_.size(); ++i) {
    const at::Tensor& shape = shapes_[i];
    parts.push_back(block.narrow(0, begins_[i], static_cast<int64_t>(shape.nbytes()))
                        .view(shape.scalar_type())
                        .view(shape.sizes()));
  }
  return parts;
}

BaseStorage ShardedWeight::kind() const { return codes_ ? codes_->kind() : BaseStorage::kDense; }

c10::intrusive_ptr<CodedWeight> ShardedWeight::with(const std::vector<at::Tensor>&) const {
  return c10::make_intrusive<ShardedWeight>(*this);
}

at::Tensor ShardedWeight::dense(at::ScalarType dtype) const {
  const std::vector<at::Tensor> parts = gathered();
  return codes_ ? codes_->with(parts)->dense(dtype) : parts.front().to(dtype);
}

bool ShardedWeight::can_alias_as(at::ScalarType dtype) const {
  return !codes_ && shapes_.front().scalar_type() == dtype;
}

at::Tensor ShardedWeight::product(const at::Tensor& x_ti, const at::Tensor& bias_o) const {
  return codes_ ? codes_->with(gathered())->product(x_ti, bias_o)
                : CodedWeight::product(x_ti, bias_o);
}

at::Tensor ShardedWeight::product_backward(const at::Tensor& dy_to) const {
  return codes_ ? codes_->with(gathered())->product_backward(dy_to)
                : CodedWeight::product_backward(dy_to);
}

}  // namespace lft::ops
