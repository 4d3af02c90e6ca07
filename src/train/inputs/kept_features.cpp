#include "src/train/inputs/kept_features.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "models/base/call.h"
#include "models/ops/core/few_rows.h"
#include "models/ops/core/precision.h"
#include "src/base/hash.h"

namespace lft::train {
namespace {

constexpr uint64_t kSecondDigest = uint64_t{1} << 60;  // another offset: other factors

std::vector<int64_t> key_of(const family::Batch& image) {
  const at::Tensor& pixels = image.pixels;
  const auto digest = [&](uint64_t offset) {
    return static_cast<int64_t>(placed_digest(pixels.const_data_ptr(), pixels.nbytes(), offset));
  };
  const family::ImageShape shape = family::image_shapes(image).front();
  return {digest(0),           digest(kSecondDigest),
          shape.tiles,         shape.height,
          shape.width,         shape.rows,
          shape.columns,       shape.source.width,
          shape.source.height, static_cast<int64_t>(ops::compute_dtype())};
}

at::Tensor restored(const std::vector<uint8_t>& bytes, const std::vector<int64_t>& sizes,
                    at::ScalarType dtype) {
  at::Tensor tensor = at::empty(sizes, dtype);
  std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

/// The features, then those of the deep layers.
std::vector<at::Tensor> tensors_of(const family::ImageFeatures& features) {
  std::vector<at::Tensor> tensors = features.deepstack_features_kd;
  tensors.insert(tensors.begin(), features.features_kd);
  return tensors;
}

bool is_finite(const std::vector<at::Tensor>& tensors) {
  return std::ranges::all_of(
      tensors, [](const at::Tensor& each) { return at::isfinite(each).all().item<bool>(); });
}

/// The bits of a product may depend on how its operands are aligned.
family::ImageFeatures computed(family::ModelImpl& model, family::Batch image) {
  image.pixels = image.pixels.clone();
  return model.image_features(image);
}

}  // namespace

family::ImageFeatures KeptFeatures::features(family::ModelImpl& model, const family::Batch& batch) {
  const at::NoGradGuard no_grad;
  const ops::FewRowsGuard as_in_a_step(false);
  std::vector<family::ImageFeatures> parts;
  for (const family::Batch& image : family::single_images(batch))
    parts.push_back(of_image(model, image));
  return family::join_features(parts);
}

family::ImageFeatures KeptFeatures::of_image(family::ModelImpl& model, const family::Batch& image) {
  if (most_bytes_ == 0 || call_detail::observer() != nullptr) return computed(model, image);
  const Key key = key_of(image);
  if (const auto found = stored_.find(key); found != stored_.end()) {
    family::ImageFeatures features;
    for (const Stored& each : found->second) {
      at::Tensor tensor = restored(each.bytes, each.sizes, each.dtype);
      if (!features.features_kd.defined())
        features.features_kd = std::move(tensor);
      else
        features.deepstack_features_kd.push_back(std::move(tensor));
    }
    return features;
  }
  const auto start = std::chrono::steady_clock::now();
  family::ImageFeatures features = computed(model, image);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  if (const std::vector<at::Tensor> tensors = tensors_of(features); is_finite(tensors))
    keep(key, tensors, taken.count());
  return features;
}

void KeptFeatures::keep(const Key& key, const std::vector<at::Tensor>& tensors, double seconds) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += static_cast<int64_t>(tensor.nbytes());
  if (bytes > most_bytes_ - kept_.bytes) return;
  kept_.bytes += bytes;
  kept_.seconds += seconds;
  ++kept_.images;
  std::vector<Stored>& stored = stored_[key];
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor whole = tensor.contiguous();
    const auto* from = static_cast<const uint8_t*>(whole.const_data_ptr());
    stored.push_back({{from, from + whole.nbytes()}, whole.sizes().vec(), whole.scalar_type()});
  }
}

bool is_of_decoder(const std::string& trainable) {
  return trainable.starts_with("language_model.");
}

}  // namespace lft::train
