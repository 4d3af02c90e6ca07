#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "kernels/common/error.h"
#include "models/objective/forward_loss.h"
#include "src/cli/commands.h"
#include "src/cli/infer.h"
#include "src/cli/infer_target.h"
#include "src/data/batch.h"
#include "src/data/loader.h"
#include "src/infer/non_finite.h"
#include "src/io/json.h"

namespace lft::cli {
namespace {

struct ScoreOptions {
  InferOptions infer;
  std::string data, image_root, out;
};

/// Samples in a forward pass, few enough for the activations of a 7B model. Padding changes no
/// result.
constexpr int64_t kRows = 4;

io::Json score_line(const data::Sample& sample, const float* logprobs, int64_t count) {
  double sum = 0;
  io::Json values = io::Json::array();
  for (int64_t i = 0; i < count; ++i) {
    const double value = logprobs[i];
    values.push_back(value);
    sum -= value;
  }
  io::Json line = {{"id", sample.id},
                   {"input_ids", sample.input_ids},
                   {"labels", sample.labels},
                   {"logprobs", std::move(values)}};
  line["loss"] = count > 0 ? io::Json(sum / static_cast<double>(count)) : io::Json(nullptr);
  return line;
}

/// Rows whose log-probabilities are not finite.
struct BadRows {
  int64_t count = 0;
  std::string first, module;
};

void score_batch(InferModel& infer, const std::vector<data::Sample>& samples, OutputLines& out,
                 BadRows& bad) {
  const family::Batch batch = data::collate(samples, infer.encode, infer.device);
  const at::Tensor logprobs =
      objective::forward_logprobs({.compute = infer.dtype}, infer.model, batch)
          .to(at::kCPU, at::kFloat)
          .contiguous();
  const float* next = logprobs.const_data_ptr<float>();
  int64_t left = logprobs.numel();
  for (const data::Sample& sample : samples) {
    const int64_t count = sample.supervised();
    if (count > left)
      refuse(ErrorKind::kInternal, "fewer log-probabilities than supervised tokens", sample.id);
    if (!std::all_of(next, next + count, [](float value) { return std::isfinite(value); }) &&
        bad.count++ == 0) {
      const infer::NonFinite found =
          infer::explain_loss(infer.model, sample, infer.encode, infer.dtype);
      bad.first = infer::row_text(sample.id, found, infer.tokenizer.get());
      bad.module = found.module;
    }
    out.line(io::json_text(score_line(sample, next, count)));
    next += count;
    left -= count;
  }
}

void score(ScoreOptions options) {
  settle_target(options.infer);
  OutputLines out(options.out, {{options.infer.model, options.infer.adapter, options.data},
                                {options.image_root}});
  InferModel infer = load_infer_model(options.infer);
  const auto dataset =
      data::open_dataset(options.data, options.image_root, *infer.tokenizer, infer.encode);
  const at::NoGradGuard no_grad;
  data::Loader loader(*dataset, {.batch_size = kRows,
                                 .grad_accum = 1,
                                 .workers = 2,
                                 .seed = 0,
                                 .shuffle = false,
                                 .skip_bad = false});
  BadRows bad;
  for (int64_t step = 0; step < loader.steps_per_epoch(); ++step) {
    const data::StepSamples batch = loader.next();
    for (const std::vector<data::Sample>& samples : batch.micro)
      score_batch(infer, samples, out, bad);
    stop_if_requested();
  }
  out.commit();
  if (bad.count > 1) bad.first += ", the first of " + std::to_string(bad.count) + " such rows";
  if (bad.count > 0) throw infer::non_finite_error(bad.first, bad.module, infer.dtype);
}

}  // namespace

void add_score(Command& app) {
  Command command = app.subcommand(
      "score",
      "compute the log-probability of every supervised token, one JSON line for each sample");
  const auto options = std::make_shared<ScoreOptions>();
  add_infer_options(command, options->infer);
  command
      .option("--data", options->data,
              "data file (JSON, JSONL, CSV, tar, Parquet, Arrow) or prepared directory")
      .required();
  command.option("--image-root", options->image_root, "directory of the images");
  command.option("--out", options->out, "output file").required();
  command.run([options] { score(*options); });
}

}  // namespace lft::cli
