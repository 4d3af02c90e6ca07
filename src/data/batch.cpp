#include "src/data/batch.h"

#include <ATen/ceil_div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "models/ops/core/copy_to_device.h"
#include "models/ops/core/dispatch.h"
#include "src/data/same_images.h"
#include "src/data/shared_prompt.h"

namespace lft::data {
namespace {

/// All 256 normalised values of a channel, in float32 and in the order of operations of HF's fused
/// rescale and normalise.
std::vector<float> channel_table(float mean, float std) {
  const float shift = mean * 255.0f, scale = std * 255.0f;
  std::vector<float> table(256);
  for (int value = 0; value < 256; ++value)
    table[static_cast<size_t>(value)] = (static_cast<float>(value) - shift) / scale;
  return table;
}

using ChannelTables = std::array<std::vector<float>, 3>;

/// The images of a batch and their sizes. Consecutive samples with the same images, as the two
/// sides of a pair, share them; within shared positions they are shown once.
struct BatchImages {
  std::vector<const PixelImage*> images;
  std::vector<int64_t> shown;  // the images of all samples in order, as indices into `images`
  int64_t values = 0, tiles = 0;
  bool alike = true;  // all tiles have one size

  BatchImages(const std::vector<Sample>& samples, bool share, const std::vector<int64_t>& shared) {
    for (size_t i = 0; i < samples.size(); ++i) {
      const std::vector<PixelImage>& own = samples[i].images;
      if (!shared.empty() && shared[i] > 0) continue;
      if (share && i > 0 && !own.empty() && same_images(samples[i - 1], samples[i])) {
        for (const int64_t before : std::vector(shown.end() - std::ssize(own), shown.end()))
          shown.push_back(before);
        continue;
      }
      for (const PixelImage& image : own) {
        shown.push_back(std::ssize(images));
        images.push_back(&image);
        values += image.shape.values();
        tiles += image.shape.tiles;
        alike &= image.shape.height == images[0]->shape.height &&
                 image.shape.width == images[0]->shape.width;
      }
    }
  }
  std::vector<int64_t> sizes() const {
    if (!alike) return {values};
    return {tiles, 3, images[0]->shape.height, images[0]->shape.width};
  }
};

at::Tensor normalised_pixels(const BatchImages& batch, const ChannelTables& tables) {
  at::Tensor pixels = at::empty(batch.sizes(), at::kFloat);
  float* out = pixels.mutable_data_ptr<float>();
  for (const PixelImage* image : batch.images) {
    const int64_t plane = image->shape.height * image->shape.width;
    const uint8_t* in = image->chw.data();
    for (int64_t c = 0; c < 3 * image->shape.tiles; ++c, in += plane, out += plane) {
      std::transform(
          in, in + plane, out,
          [&table = tables[static_cast<size_t>(c % 3)]](uint8_t value) { return table[value]; });
    }
  }
  return pixels;
}

/// The same numbers by a table look-up on the device: a quarter of the bytes is copied,
/// asynchronously.
at::Tensor normalised_there(const BatchImages& batch, const ChannelTables& tables,
                            at::Device device) {
  at::Tensor raw = at::empty({batch.values},
                             at::TensorOptions(at::kByte).pinned_memory(ops::runs_kernels(device)));
  uint8_t* out = raw.mutable_data_ptr<uint8_t>();
  for (const PixelImage* image : batch.images)
    out = std::copy(image->chw.begin(), image->chw.end(), out);
  const at::Tensor index = raw.to(device, at::kByte, /*non_blocking=*/true).to(at::kInt);
  at::Tensor pixels = at::empty(index.sizes(), index.options().dtype(at::kFloat));
  std::array<at::Tensor, 3> there;
  for (size_t c = 0; c < 3; ++c)
    there[c] = ops::copy_to_device(at::tensor(tables[c], at::kFloat), device);
  int64_t from = 0;
  const auto look_up = [&](int64_t tiles, const family::ImageShape& shape) {
    const std::vector<int64_t> sizes = {tiles, 3, shape.height, shape.width};
    const int64_t values = c10::multiply_integers(sizes);
    const at::Tensor in = index.narrow(0, from, values).view(sizes),
                     to = pixels.narrow(0, from, values).view(sizes);
    for (int64_t c = 0; c < 3; ++c) {
      to.select(1, c).copy_(there[static_cast<size_t>(c)]
                                .index_select(0, in.select(1, c).flatten())
                                .view({tiles, shape.height, shape.width}));
    }
    from += values;
  };
  if (batch.alike) {
    look_up(batch.tiles, batch.images[0]->shape);
  } else {
    for (const PixelImage* image : batch.images) look_up(image->shape.tiles, image->shape);
  }
  return pixels.view(batch.sizes());
}

/// `share`: not if the number of images of a batch must be that of its samples (CUDA graphs).
/// `shared`: shared_in_batch().
void set_pixels(family::Batch& batch, const std::vector<Sample>& samples,
                const EncodeOptions& options, at::Device device, bool share,
                const std::vector<int64_t>& shared = {}) {
  const BatchImages images(samples, share, shared);
  if (images.images.empty()) return;
  ChannelTables tables;
  for (size_t c = 0; c < 3; ++c)
    tables[c] = channel_table(options.images->mean[c], options.images->std[c]);
  batch.pixels = device.is_cpu() ? normalised_pixels(images, tables)
                                 : normalised_there(images, tables, device);
  for (const PixelImage* image : images.images) batch.images.push_back(image->shape);
  if (images.shown.size() > images.images.size()) batch.shown = images.shown;
}

/// What an objective reads, if it is known: the labels and the sums under the reference.
void set_answers(family::Batch& batch, const std::vector<Sample>& samples) {
  if (!samples.empty() && samples.front().desirable) {
    batch.desirable_n = at::empty({std::ssize(samples)}, at::kBool);
    std::ranges::transform(samples, batch.desirable_n.mutable_data_ptr<bool>(),
                           [](const Sample& sample) { return sample.desirable.value(); });
  }
  std::vector<double> sums;
  for (const Sample& sample : samples) sums.push_back(sample.reference);
  if (sums.empty() || std::isnan(sums.front())) return;
  batch.reference_n = at::tensor(sums, at::kDouble);
}

int64_t pad_token(const family::ModelConfig& config) {
  return config.pad_token >= 0 && config.pad_token < config.text.vocab ? config.pad_token : 0;
}

}  // namespace

family::Batch collate(const std::vector<Sample>& samples, const EncodeOptions& options,
                      at::Device device) {
  const int64_t rows = static_cast<int64_t>(samples.size());
  int64_t longest = 0;
  bool labelled = false;
  for (const Sample& sample : samples) {
    longest = std::max(longest, static_cast<int64_t>(sample.input_ids.size()));
    labelled |= !sample.labels.empty();
  }
  at::Tensor ids_bt = at::full({rows, longest}, pad_token(options.config), at::kLong),
             labels_bt = at::full({rows, longest}, -100, at::kLong);
  at::Tensor lengths_b = at::empty({rows}, at::kLong);
  for (int64_t b = 0; b < rows; ++b) {
    const Sample& sample = samples[static_cast<size_t>(b)];
    std::copy(sample.input_ids.begin(), sample.input_ids.end(),
              ids_bt.mutable_data_ptr<int64_t>() + b * longest);
    std::copy(sample.labels.begin(), sample.labels.end(),
              labels_bt.mutable_data_ptr<int64_t>() + b * longest);
    lengths_b.mutable_data_ptr<int64_t>()[b] = static_cast<int64_t>(sample.input_ids.size());
  }
  family::Batch batch;
  batch.input_ids_bt = ids_bt;
  if (labelled) batch.labels_bt = labels_bt;
  batch.lengths_b = lengths_b;
  set_answers(batch, samples);
  set_pixels(batch, samples, options, device, /*share=*/true);
  return batch;
}

family::Batch pack(const std::vector<Sample>& samples, const EncodeOptions& options,
                   at::Device device, int64_t fill_to) {
  auto packed = std::make_shared<ops::PackedSequences>();
  if (options.share_prompts) packed->shared = shared_in_batch(samples);
  std::vector<int64_t>& starts = packed->starts;
  starts.push_back(0);
  for (size_t s = 0; s < samples.size(); ++s)
    starts.push_back(starts.back() + std::ssize(samples[s].input_ids) - packed->shared_by(s));
  while (starts.back() < fill_to)
    starts.push_back(std::min(fill_to, starts.back() + options.max_tokens));
  if (!packed->shared.empty()) packed->shared.resize(starts.size() - 1);
  const int64_t total = starts.back();
  at::Tensor ids_bt = at::full({1, total}, pad_token(options.config), at::kLong),
             labels_bt = at::full({1, total}, -100, at::kLong);
  for (size_t s = 0; s < samples.size(); ++s) {
    const Sample& sample = samples[s];
    const int64_t shared = packed->shared_by(s);
    std::copy(sample.input_ids.begin() + shared, sample.input_ids.end(),
              ids_bt.mutable_data_ptr<int64_t>() + starts[s]);
    if (std::ssize(sample.labels) < shared + 2) continue;  // no position predicts a first token
    std::copy(sample.labels.begin() + shared + 1, sample.labels.end(),
              labels_bt.mutable_data_ptr<int64_t>() + starts[s] + 1);
  }
  if (!device.is_cpu()) {
    const auto there = [&](const std::vector<int64_t>& numbers) {
      return ops::copy_to_device(at::tensor(numbers, at::kLong).to(at::kInt), device);
    };
    packed->starts_s1 = there(starts);
    if (!packed->shared.empty()) packed->whole_starts_s1 = there(packed->whole_starts());
  }
  family::Batch batch;
  batch.input_ids_bt = ids_bt;
  batch.labels_bt = labels_bt;
  batch.lengths_b = at::tensor(std::vector<int64_t>{total}, at::kLong);
  set_answers(batch, samples);
  set_pixels(batch, samples, options, device, /*share=*/fill_to == 0, packed->shared);
  batch.packed = std::move(packed);
  return batch;
}

family::Batch make_batch(const BatchLayout& layout, const std::vector<Sample>& samples) {
  if (!layout.packs()) return collate(samples, layout.encode, layout.device);
  int64_t fill_to = 0;
  if (layout.fill_up > 0)
    fill_to = filled_tokens(packed_positions(samples, layout.encode.share_prompts), layout.fill_up);
  return pack(samples, layout.encode, layout.device, fill_to);
}

int64_t filled_tokens(int64_t tokens, int64_t most) {
  const int64_t piece = at::round_up(at::ceil_div(most, int64_t{32}), int64_t{64});
  return std::min(most, at::round_up(tokens, piece));
}

}  // namespace lft::data
