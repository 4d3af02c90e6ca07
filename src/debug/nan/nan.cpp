#include "src/debug/nan/nan.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "models/objective/forward_loss.h"
#include "models/ops/core/precision.h"
#include "src/infer/non_finite.h"
#include "src/train/machine/device.h"

namespace lft::debug {
namespace {

using train::short_number;

constexpr double kBlownUp = 1e4;  // a gradient multiplied by this in one node is reported

std::string given_text(const at::Tensor& tensor) {
  return train::bad_count_text(train::tensor_facts(tensor)) + ", the first at flat index " +
         std::to_string(train::first_bad_index(tensor));
}

std::string micro_text(size_t micro) { return "micro-batch " + std::to_string(micro); }

/// Where the samples end, as flat indices into b * t.
std::vector<int64_t> sample_ends(const family::Batch& batch) {
  if (batch.packed) return {batch.packed->starts.begin() + 1, batch.packed->starts.end()};
  std::vector<int64_t> ends;
  for (int64_t row = 1; row <= batch.input_ids_bt.size(0); ++row)
    ends.push_back(row * batch.input_ids_bt.size(1));
  return ends;
}

/// Samples have their images in order; a sample's image positions give its number of images.
void add_bad_pixels(const family::Batch& batch, size_t micro, const std::vector<std::string>& ids,
                    family::Model& model, std::vector<BadGiven>& out) {
  const family::ModelConfig& config = model->config;
  if (!batch.pixels.defined() || train::is_finite(batch.pixels)) return;
  const std::vector<family::ImageShape> shapes = family::image_shapes(batch);
  const at::Tensor values = batch.pixels.flatten();
  std::vector<int64_t> begins = {0};
  for (const family::ImageShape& shape : shapes) begins.push_back(begins.back() + shape.values());
  const size_t count = batch.shown.empty() ? shapes.size() : batch.shown.size();
  const std::vector<int64_t> ends = sample_ends(batch);
  const at::Tensor is_image = (batch.input_ids_bt == config.image_token).flatten();
  size_t next = 0;
  int64_t begin = 0;
  for (size_t index = 0; index < ends.size(); begin = ends[index], ++index) {
    int64_t left = is_image.narrow(0, begin, ends[index] - begin).sum().item<int64_t>();
    for (; left > 0 && next < count; ++next) {
      const size_t image = batch.shown.empty() ? next : static_cast<size_t>(batch.shown[next]);
      left -= model->image_positions(shapes[image]);
      const at::Tensor pixels = values.narrow(0, begins[image], shapes[image].values());
      if (train::is_finite(pixels)) continue;
      const std::string sample =
          index < ids.size() ? "sample " + ids[index] : "row " + std::to_string(index);
      out.push_back({"pixels of " + sample + " in " + micro_text(micro), given_text(pixels)});
    }
  }
}

/// The model would reject these, but cannot check them on a GPU.
void add_bad_tokens(const at::Tensor& tokens_bt, const std::string& what, const at::Tensor& allowed,
                    size_t micro, int64_t vocab, std::vector<BadGiven>& out) {
  if (!tokens_bt.defined()) return;
  const at::Tensor bad =
      (tokens_bt < 0).logical_or(tokens_bt >= vocab).logical_and(allowed.logical_not()).nonzero();
  if (bad.size(0) == 0) return;
  const int64_t row = bad[0][0].item<int64_t>(), position = bad[0][1].item<int64_t>();
  out.push_back({what + " in " + micro_text(micro),
                 std::to_string(bad.size(0)) + " outside [0, " + std::to_string(vocab) +
                     "), the first is " + std::to_string(tokens_bt[row][position].item<int64_t>()) +
                     " at row " + std::to_string(row) + ", position " + std::to_string(position)});
}

int64_t supervised_in(const family::Batch& batch) {
  return batch.labels_bt.defined() ? (batch.labels_bt != -100).sum().item<int64_t>() : 0;
}

class Hunter {
 public:
  Hunter(family::Model& model, const HuntInput& input) : model_(model), input_(input) {}

  Hunt run() {
    Hunt hunt;
    hunt.compute = input_.compute;
    const at::NoGradGuard no_grad;
    for (const auto& parameter : model_->named_parameters()) {
      weights_.push_back({parameter.key(), parameter.value()});
      if (!train::is_finite(parameter.value()))
        hunt.given.push_back({"weight " + parameter.key(), given_text(parameter.value())});
    }
    const int64_t vocab = model_->config.text.vocab;
    bool runs = true;
    for (size_t m = 0; m < input_.micro.size(); ++m) {
      const family::Batch& batch = input_.micro[m];
      counts_.supervised += supervised_in(batch);
      counts_.rows += std::ssize(sample_ends(batch));
      add_bad_pixels(batch, m, m < input_.ids.size() ? input_.ids[m] : std::vector<std::string>(),
                     model_, hunt.given);
      const size_t before = hunt.given.size();
      add_bad_tokens(batch.input_ids_bt, "token ids",
                     batch.input_ids_bt == model_->config.image_token, m, vocab, hunt.given);
      if (batch.labels_bt.defined())
        add_bad_tokens(batch.labels_bt, "labels", batch.labels_bt == -100, m, vocab, hunt.given);
      runs = runs && hunt.given.size() == before;
    }
    for (size_t m = 0; runs && m < input_.micro.size(); ++m) {
      if (supervised_in(input_.micro[m]) > 0) hunt.micro.push_back(hunt_micro(m));
    }
    find_rows(hunt);
    if (!std::isfinite(input_.kl) && !hunt.found())
      hunt.given.push_back({"the KL divergence from the reference", short_number(input_.kl)});
    return hunt;
  }

 private:
  void find_rows(Hunt& hunt) {
    if (input_.samples.micro.empty()) return;
    std::vector<size_t> bad;
    for (const MicroHunt& micro : hunt.micro) {
      if (!micro.pass.finite()) bad.push_back(micro.micro);
    }
    if (input_.evaluated > 0) return find_evaluated_rows(bad, hunt);
    const at::AutoGradMode graph(true);
    hunt.rows = train::find_bad_rows(model_, input_.samples, bad,
                                     {.context = context(0, input_.compute),
                                      .parameters = trained(),
                                      .loss_scale = input_.loss_scale});
  }

  void find_evaluated_rows(const std::vector<size_t>& bad, Hunt& hunt) {
    hunt.rows.looked_at = static_cast<size_t>(input_.evaluated);
    for (const size_t micro : bad) {
      const data::Sample& row = input_.samples.micro[micro].front();
      const infer::NonFinite found =
          infer::explain_loss(model_, row, input_.samples.layout->encode, input_.compute);
      hunt.rows.rows.push_back({.micro_batch = micro,
                                .id = row.id,
                                .position = found.place.position,
                                .image = found.place.image,
                                .module = found.module});
    }
  }

  std::vector<train::NamedTensor> trained() const {
    std::vector<train::NamedTensor> tensors;
    for (const lora::Trainable& trainable : input_.trainables)
      tensors.push_back({trainable.name, trainable.tensor});
    return tensors;
  }

  MicroHunt hunt_micro(size_t m) {
    MicroHunt hunt;
    hunt.micro = m;
    hunt.pass = pass(m, input_.compute, input_.loss_scale, /*backward=*/true);
    if (input_.compute != at::kFloat) run_beside(hunt);
    if (hunt.pass.finite()) return hunt;
    add_forward_hints(hunt);
    add_backward_hints(hunt);
    return hunt;
  }

  objective::ForwardContext context(size_t micro, at::ScalarType compute) const {
    objective::ForwardContext context{
        .compute = compute,
        .recompute = input_.recompute,
        .normaliser = std::max<int64_t>(1, input_.objective->normaliser(counts_)),
        .kl = std::isfinite(input_.kl) ? input_.kl : 0,  // else no row would be finite
        .objective = input_.objective.get()};
    if (input_.evaluated == 0)
      context.dropout = ops::DropoutPosition{
          .seed = input_.seed, .step = static_cast<uint64_t>(input_.step), .micro_batch = micro};
    return context;
  }

  train::PassReport pass(size_t m, at::ScalarType compute, double loss_scale, bool backward) {
    const family::Batch& batch = input_.micro[m];
    train::PassRequest request{
        .loss = [&] { return objective::forward_loss(context(m, compute), model_, batch); },
        .parameters = trained(),
        .known = weights_,
        .loss_scale = loss_scale,
        .backward = backward && input_.evaluated == 0};
    if (batch.pixels.defined()) request.known.push_back({"the pixels", batch.pixels});
    return train::watch_pass(request);
  }

  /// Runs the same in FP32, and finds the first difference.
  void run_beside(MicroHunt& hunt) {
    try {
      hunt.fp32 = pass(hunt.micro, at::kFloat, 1, /*backward=*/!hunt.pass.finite());
    } catch (const std::exception& error) {
      if (!train::is_out_of_memory(error)) throw;
      return;
    }
    const std::vector<train::ModuleRow>&own = hunt.pass.modules, &other = hunt.fp32->modules;
    for (size_t i = 0; i < std::min(own.size(), other.size()); ++i) {
      hunt.differences.push_back(relative_difference(own[i], other[i]));
      if (!hunt.parting && hunt.differences[i] > explained_difference(input_.compute, i + 1))
        hunt.parting = i;
    }
  }

  /// A value that overflows in FP32, too, is not caused by the step's precision.
  static void name_both_precisions(MicroHunt& hunt) {
    if (!hunt.fp32 || hunt.fp32->finite()) return;
    for (train::Hint& hint : hunt.hints) {
      if (hint.name == "overflow of bf16" || hint.name == "overflow of fp16")
        hint.name += ", and of fp32 as well";
    }
  }

  void add_forward_hints(MicroHunt& hunt) {
    if (!hunt.pass.forward) return;
    const train::BadValue& bad = *hunt.pass.forward;
    hunt.hints = bad.hints;
    name_both_precisions(hunt);
    if (!bad.from.empty())
      hunt.hints.push_back(
          {"not finite before anything was computed", bad.op + " read " + bad.from});
    if (!hunt.fp32 || input_.compute != at::kHalf) return;
    const auto row = std::ranges::find(hunt.fp32->modules, bad.module, &train::ModuleRow::module);
    if (row == hunt.fp32->modules.end() || !(row->largest > train::largest_value(at::kHalf)))
      return;
    const std::string text =
        "in fp32 the output of " + bad.module + " reaches " + short_number(row->largest);
    const std::string name = "overflow of fp16";
    const auto same = std::ranges::find(hunt.hints, name, &train::Hint::name);
    if (same != hunt.hints.end()) {
      same->evidence += "; " + text;
    } else {
      hunt.hints.push_back({name, text + "; fp16 ends at 65504"});
    }
  }

  void add_backward_hints(MicroHunt& hunt) {
    if (!hunt.pass.backward || hunt.pass.forward) return;
    const train::BadValue& bad = *hunt.pass.backward;
    hunt.hints.insert(hunt.hints.end(), bad.hints.begin(), bad.hints.end());
    if (input_.loss_scale > 1) {
      const train::PassReport unscaled = pass(hunt.micro, input_.compute, 1, /*backward=*/true);
      if (unscaled.finite()) {
        hunt.hints.push_back(
            {"loss scale too high",
             "at loss scale " + short_number(input_.loss_scale) +
                 " gradients overflow, at 1 the same backward pass is finite (gradient norm " +
                 short_number(unscaled.gradient_norm) + ")"});
      }
    }
    const train::GradientRow* worst = nullptr;
    const auto growth = [](const train::GradientRow& row) {
      return row.received > 0 ? row.returned / row.received : 0;
    };
    for (const train::GradientRow& row : hunt.pass.trace) {
      if (std::isfinite(row.returned) && std::isfinite(row.received) &&
          (worst == nullptr || growth(row) > growth(*worst)))
        worst = &row;
    }
    if (worst == nullptr || growth(*worst) < kBlownUp) return;
    hunt.hints.push_back({"a gradient blown up on the way",
                          worst->node + (worst->module.empty() ? "" : " of " + worst->module) +
                              " received up to " + short_number(worst->received) +
                              " and returned " + short_number(worst->returned)});
  }

  family::Model& model_;
  const HuntInput& input_;
  std::vector<train::NamedTensor> weights_;
  objective::GlobalBatchCounts counts_;
};

}  // namespace

bool Hunt::found() const { return !given.empty() || first() != nullptr; }

const MicroHunt* Hunt::first() const {
  const auto bad =
      std::ranges::find_if(micro, [](const MicroHunt& each) { return !each.pass.finite(); });
  return bad == micro.end() ? nullptr : &*bad;
}

Hunt hunt_non_finite(family::Model& model, const HuntInput& input) {
  return Hunter(model, input).run();
}

double relative_difference(const train::ModuleRow& a, const train::ModuleRow& b) {
  if (std::isfinite(a.largest) != std::isfinite(b.largest)) return INFINITY;
  if (!std::isfinite(a.largest) || a.sample.size() != b.sample.size()) return 0;
  double apart = 0, size = 0;
  for (size_t i = 0; i < a.sample.size(); ++i) {
    apart += (static_cast<double>(a.sample[i]) - b.sample[i]) *
             (static_cast<double>(a.sample[i]) - b.sample[i]);
    size += static_cast<double>(b.sample[i]) * b.sample[i];
  }
  return size > 0 ? std::sqrt(apart / size) : apart > 0 ? INFINITY : 0;
}

double explained_difference(at::ScalarType dtype, size_t calls) {
  const double unit = dtype == at::kHalf ? 0x1p-11 : dtype == at::kBFloat16 ? 0x1p-8 : 0x1p-24;
  return 4 * unit * std::sqrt(static_cast<double>(calls));
}

}  // namespace lft::debug
