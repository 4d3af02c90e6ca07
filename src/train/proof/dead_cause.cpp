#include "src/train/proof/dead_cause.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "models/base/call.h"
#include "models/objective/forward_loss.h"
#include "src/data/batch.h"
#include "src/train/explain/tensor_facts.h"

namespace lft::train {
namespace {

/// The calls of a pass in the order of their ends, and which had only zeros as output or input.
class ZeroWatch : public CallObserver {
 public:
  struct Row {
    std::string module;
    bool given = false, gave = false;
  };

  void before(const std::string& path, const torch::nn::Module&,
              const std::vector<at::Tensor>& inputs) override {
    running_.push_back({path, zeros_only(inputs), false});
  }
  void after(const std::string&, const torch::nn::Module&,
             const std::vector<at::Tensor>& outputs) override {
    Row row = std::move(running_.back());
    running_.pop_back();
    row.gave = zeros_only(outputs);
    rows.push_back(std::move(row));
  }

  std::vector<Row> rows;

 private:
  static bool zeros_only(const std::vector<at::Tensor>& tensors) {
    const auto floats = [](const at::Tensor& tensor) {
      return tensor.defined() && tensor.numel() > 0 && at::isFloatingType(tensor.scalar_type());
    };
    return std::ranges::any_of(tensors, floats) &&
           std::ranges::all_of(tensors, [&](const at::Tensor& tensor) {
             return !floats(tensor) || largest_magnitude(tensor) == 0;
           });
  }

  std::vector<Row> running_;
};

std::string zero_weight(family::Model& model, const std::string& module) {
  for (const auto& parameter : model->named_parameters()) {
    const std::string& name = parameter.key();
    if (name.starts_with(module + ".") && name.find('.', module.size() + 1) == std::string::npos &&
        largest_magnitude(parameter.value()) == 0)
      return ": its " + name.substr(module.size() + 1) + " is all zeros";
  }
  return "";
}

}  // namespace

std::string dead_cause(family::Model& model, const Probe& probe, const std::string& module) {
  ZeroWatch watch;
  {
    const at::NoGradGuard no_grad;
    const ObserveCalls observe(watch);
    objective::forward_loss(
        {.compute = probe.compute}, model,
        data::make_batch({.encode = probe.encode, .device = probe.device, .packed = probe.packed},
                         probe.samples));
  }
  const std::vector<ZeroWatch::Row>& rows = watch.rows;
  const auto own = std::ranges::find(rows, module, &ZeroWatch::Row::module);
  if (own == rows.end()) return "";
  const auto made = [](const ZeroWatch::Row& row) { return row.gave && !row.given; };
  const auto tell = [&](const ZeroWatch::Row& row, const char* side) {
    return row.module + ", " + side + " it, gives zeros only" + zero_weight(model, row.module);
  };
  if (own->given) {
    const auto before = std::find_if(std::make_reverse_iterator(own), rows.rend(), made);
    return before == rows.rend() ? "what it is given is zero" : tell(*before, "before");
  }
  const auto after = std::find_if(own + 1, rows.end(), made);
  return after == rows.end() ? "" : tell(*after, "after");
}

}  // namespace lft::train
