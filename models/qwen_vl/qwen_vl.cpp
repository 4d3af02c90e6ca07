#include "models/qwen_vl/qwen_vl.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "kernels/common/error.h"
#include "models/base/call.h"
#include "models/family/messages.h"

namespace lft::qwen_vl {
namespace {

/// The range of a sequence in a batch, as flat indices into b * t, and the place of a token with
/// its first position: itself, or after shared positions that of the sequence before.
struct Span {
  int64_t begin, end, like = begin;
};

std::vector<Span> spans_of(const family::Batch& batch) {
  std::vector<Span> spans;
  if (batch.packed) {
    const std::vector<int64_t>& starts = batch.packed->starts;
    for (size_t i = 0; i + 1 < starts.size(); ++i) {
      const int64_t shared = batch.packed->shared_by(i);
      spans.push_back({starts[i], starts[i + 1], shared > 0 ? starts[i - 1] + shared : starts[i]});
    }
    return spans;
  }
  const int64_t rows = batch.input_ids_bt.size(0), width = batch.input_ids_bt.size(1);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t length = batch.lengths_b.defined() ? batch.lengths_b[row].item<int64_t>() : width;
    spans.push_back({row * width, row * width + length});
  }
  return spans;
}

/// Writes the positions of consecutive sequences. The images are used in order.
class Writer {
 public:
  Writer(const int64_t* ids, int64_t count, int64_t image_token)
      : ids_(ids), image_token_(image_token), positions_(at::zeros({3, count}, at::kLong)) {
    for (int64_t axis = 0; axis < 3; ++axis)
      to_[axis] = positions_.mutable_data_ptr<int64_t>() + axis * count;
  }

  void write(const Span& span, std::vector<Grid>::const_iterator& image) {
    int64_t next = span.like < span.begin ? to_[0][span.like] : 0;
    for (int64_t place = span.begin; place < span.end;) {
      if (ids_[place] != image_token_) {
        for (int64_t* axis : to_) axis[place] = next;
        ++place, ++next;
        continue;
      }
      const Grid grid = *image++;
      const int64_t* const from = ids_ + place;
      const int64_t together =
          std::find_if(from, ids_ + span.end, [&](int64_t id) { return id != image_token_; }) -
          from;
      if (together < grid.patches()) {
        throw Error(ErrorKind::kInput, {.what = "the positions of an image are not contiguous",
                                        .where = {},
                                        .found = std::to_string(together) + " positions",
                                        .expected = std::to_string(grid.patches()),
                                        .next = family::kOfThisModel});
      }
      for (int64_t i = 0; i < grid.patches(); ++i, ++place) {
        to_[0][place] = next;
        to_[1][place] = next + i / grid.width;
        to_[2][place] = next + i % grid.width;
      }
      next += std::max(grid.height, grid.width);
    }
  }

  const at::Tensor& positions() const { return positions_; }

 private:
  const int64_t* ids_;
  int64_t image_token_;
  at::Tensor positions_;
  int64_t* to_[3];
};

}  // namespace

QwenVlImpl::QwenVlImpl(const family::ModelConfig& config, at::ScalarType dtype, at::Device device,
                       ops::BaseStorage storage)
    : ModelImpl(config) {
  const at::TensorOptions options = at::TensorOptions().dtype(dtype).device(device);
  vision_tower = register_module("vision_tower", VisionTower(vision_of(config), options));
  multi_modal_projector =
      register_module("multi_modal_projector", Projector(vision_of(config), options));
  add_decoder(options, storage);
}

family::ImageFeatures QwenVlImpl::image_features(const family::Batch& batch) {
  const std::vector<family::ImageShape> shapes = family::image_shapes(batch);
  const std::vector<Grid> grids = grids_of(shapes, vision_of(config));
  int64_t values = 0;
  for (const family::ImageShape& shape : shapes) values += shape.values();
  if (batch.pixels.numel() != values) {
    throw Error(ErrorKind::kInput, {.what = "pixels and images differ in number",
                                    .where = {},
                                    .found = std::to_string(batch.pixels.numel()) + " values",
                                    .expected = std::to_string(values),
                                    .next = family::kOfThisModel});
  }
  const std::vector<at::Tensor> states =
      call("vision_tower", vision_tower, batch.pixels.to(device()), grids);
  std::vector<at::Tensor> features = call("multi_modal_projector", multi_modal_projector, states);
  return {.features_kd = features.front(),
          .deepstack_features_kd = {features.begin() + 1, features.end()}};
}

int64_t QwenVlImpl::image_positions(const family::ImageShape& image) const {
  const int64_t side = vision_of(config).side();
  return (image.height / side) * (image.width / side);
}

at::Tensor QwenVlImpl::positions(const family::Batch& batch) const {
  const VisionConfig& v = vision_of(config);
  std::vector<Grid> images = grids_of(family::shown_shapes(batch), v);
  if (images.empty()) return {};
  for (Grid& image : images) image = {image.height / v.merge, image.width / v.merge};
  const at::Tensor ids = batch.input_ids_bt.contiguous();
  Writer writer(ids.const_data_ptr<int64_t>(), ids.numel(), config.image_token);
  auto image = images.cbegin();
  for (const Span& span : spans_of(batch)) writer.write(span, image);
  return writer.positions().view({3, ids.size(0), ids.size(1)});
}

}  // namespace lft::qwen_vl
