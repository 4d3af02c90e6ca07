#include "src/debug/isolate/overfit_batch.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "src/base/hash.h"
#include "src/train/inputs/run_data.h"

namespace lft::debug {
namespace {

constexpr size_t kSamples = 8;

bool teaches(const data::Sample& sample) { return sample.supervised() > 0; }
bool has_image(const data::Sample& sample) { return !sample.images.empty(); }

std::string bytes_of(const std::vector<int64_t>& ids, size_t count) {
  return {reinterpret_cast<const char*>(ids.data()), count * sizeof(int64_t)};
}

}  // namespace

data::StepSamples overfit_batch(const train::Run& run) {
  data::LoaderOptions options = train::loader_options(run, run.data.lengths);
  options.workers = 1;
  options.batch_size = kSamples;
  options.grad_accum = 1;
  data::Loader loader(*run.data.train, options);
  std::vector<data::Sample> samples;
  for (int64_t step = 0; step < loader.steps_per_epoch() && samples.size() < kSamples; ++step) {
    data::StepSamples next = loader.next();
    const size_t sides = run.data.encode.pairs ? 2 : 1;
    for (std::vector<data::Sample>& micro : next.micro) {
      for (size_t i = 0; i < micro.size(); i += sides) {  // of a pair the chosen one
        if (teaches(micro[i]) && samples.size() < kSamples) samples.push_back(std::move(micro[i]));
      }
    }
  }
  // The probe reaches every trainable; the first eight samples may all be text.
  const bool image_side = std::ranges::any_of(
      run.model.trainables, [](const auto& trained) { return trained.scope != "llm"; });
  if (image_side && std::ranges::none_of(samples, has_image)) {
    const auto with_image = std::ranges::find_if(run.probe.samples, [](const data::Sample& sample) {
      return teaches(sample) && has_image(sample);
    });
    if (with_image != run.probe.samples.end()) samples.back() = *with_image;
  }
  data::StepSamples batch;
  batch.layout = std::make_shared<data::BatchLayout>(train::batch_layout(run));
  const auto rows = static_cast<size_t>(run.recipe.train.batch_size);
  for (size_t i = 0; i < samples.size(); ++i) {
    if (i % rows == 0) batch.micro.emplace_back();
    batch.micro.back().push_back(std::move(samples[i]));
  }
  return batch;
}

double loss_floor(const data::StepSamples& batch) {
  std::map<std::string, std::map<int64_t, int64_t>> answers;  // counts of continuations by context
  int64_t total = 0;
  for (const std::vector<data::Sample>& micro : batch.micro) {
    for (const data::Sample& sample : micro) {
      std::string pixels;
      for (const data::PixelImage& image : sample.images)
        pixels.append(image.chw.begin(), image.chw.end());
      const std::string images = sha256(pixels);
      for (size_t i = 1; i < sample.labels.size(); ++i) {
        if (sample.labels[i] == -100) continue;
        ++answers[sha256(images + bytes_of(sample.input_ids, i))][sample.labels[i]];
        ++total;
      }
    }
  }
  double nats = 0;
  for (const auto& [context, counts] : answers) {
    double all = 0;
    for (const auto& [token, count] : counts) all += static_cast<double>(count);
    for (const auto& [token, count] : counts)
      nats -= static_cast<double>(count) * std::log(static_cast<double>(count) / all);
  }
  return total == 0 ? 0 : nats / static_cast<double>(total);
}

}  // namespace lft::debug
