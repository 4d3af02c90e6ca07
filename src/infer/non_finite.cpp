#include "src/infer/non_finite.h"

#include <ATen/Functions.h>

#include "models/base/call.h"
#include "models/objective/forward_loss.h"
#include "src/base/errors.h"
#include "src/data/batch.h"

namespace lft::infer {
namespace {

/// Keeps the first output that is not finite; inner modules end before outer ones.
class FirstBad : public CallObserver {
 public:
  FirstBad(const data::Sample& row, NonFinite& bad) : row_(row), bad_(bad) {}

  void after(const std::string& path, const torch::nn::Module&,
             const std::vector<at::Tensor>& outputs) override {
    for (const at::Tensor& output : outputs) {
      if (!bad_.module.empty() || !at::isFloatingType(output.scalar_type())) continue;
      const at::Tensor wrong = at::isfinite(output).logical_not().flatten();
      if (!wrong.any().item<bool>()) continue;
      bad_.module = path;
      bad_.place = place_in_row(path, output.sizes().vec(),
                                wrong.to(at::kByte).argmax().item<int64_t>(), row_);
    }
  }

 private:
  const data::Sample& row_;
  NonFinite& bad_;
};

std::string name_of(at::ScalarType compute) {
  return compute == at::kHalf ? "fp16" : compute == at::kBFloat16 ? "bf16" : "fp32";
}

}  // namespace

std::vector<int64_t> supervised_positions(const data::Sample& row) {
  std::vector<int64_t> positions;
  for (size_t i = 0; i < row.labels.size(); ++i) {
    if (row.labels[i] != -100) positions.push_back(static_cast<int64_t>(i));
  }
  return positions;
}

RowPlace place_in_row(const std::string& module, const std::vector<int64_t>& shape, int64_t index,
                      const data::Sample& row) {
  RowPlace place;
  const bool decoder = module.starts_with("language_model");
  const size_t dim = decoder && shape.size() == 3 ? 1 : 0;
  if (shape.empty() || shape.size() > 3) return place;
  int64_t below = 1;  // values per index of that dimension
  for (size_t i = dim + 1; i < shape.size(); ++i) below *= shape[i];
  const int64_t at = index / below % shape[dim];
  const std::vector<int64_t> supervised = supervised_positions(row);
  if (!decoder) {
    if (shape[0] == static_cast<int64_t>(row.images.size())) place.image = at;
  } else if (shape[dim] == static_cast<int64_t>(supervised.size())) {
    place.position = supervised[static_cast<size_t>(at)] - 1;
  } else if (shape[dim] >= static_cast<int64_t>(row.input_ids.size())) {
    place.position = at;
  }
  return place;
}

NonFinite find_non_finite(const data::Sample& row, const std::function<void()>& pass) {
  NonFinite bad;
  FirstBad watch(row, bad);
  {
    const ObserveCalls observe(watch);
    pass();
  }
  const int64_t position = bad.place.position;
  if (position >= 0 && position < static_cast<int64_t>(row.input_ids.size()))
    bad.token = row.input_ids[static_cast<size_t>(position)];
  return bad;
}

NonFinite explain_loss(family::Model& model, const data::Sample& row,
                       const data::EncodeOptions& encode, at::ScalarType compute) {
  return find_non_finite(row, [&] {
    objective::forward_logprobs({.compute = compute}, model,
                                data::collate({row}, encode, model->device()));
  });
}

std::string row_text(const std::string& id, const NonFinite& bad,
                     const text::Tokenizer* tokenizer) {
  if (bad.place.image >= 0) return id + ", image " + std::to_string(bad.place.image);
  if (bad.place.position < 0) return id;
  const std::string token = tokenizer == nullptr ? "id " + std::to_string(bad.token)
                                                 : quote_text(tokenizer->token_of(bad.token));
  return id + ", position " + std::to_string(bad.place.position) + " (token " + token + ")";
}

Error non_finite_error(const std::string& row, const std::string& module, at::ScalarType compute) {
  const std::string dtype = name_of(compute);
  return {
      ErrorKind::kNumeric,
      {.what = "the model's output is not finite",
       .where = row,
       .found = module.empty()
                    ? "no module's output is at fault in " + dtype + " where the row runs alone"
                    : "the output of " + module + " is the first that is not finite, in " + dtype,
       .expected = "finite values from every module",
       .next = compute == at::kHalf
                   ? "fp16 ends at 65504: compute in bf16 or fp32 (--dtype, or "
                     "precision.compute in a recipe)"
                   : "weights that overflow " + dtype +
                         " are damaged or have diverged: look at the base with lft debug "
                         "base, and use an adapter of an earlier checkpoint"}};
}

}  // namespace lft::infer
