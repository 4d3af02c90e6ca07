#include "src/train/explain/non_finite_pass.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <algorithm>
#include <cmath>

#include "models/base/call.h"
#include "src/train/explain/autograd_trace.h"
#include "src/train/explain/pass_walk.h"

namespace lft::train {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

constexpr int64_t kSampled = 4096;  // elements of a module's output that are kept

std::vector<float> sample_of(const at::Tensor& tensor) {
  const LookAside aside;
  const at::Tensor flat = tensor.detach().reshape(-1);
  const int64_t step = std::max<int64_t>(1, flat.numel() / kSampled);
  const at::Tensor values =
      flat.slice(0, 0, std::nullopt, step).to(at::kCPU, at::kFloat).contiguous();
  return {values.const_data_ptr<float>(), values.const_data_ptr<float>() + values.numel()};
}

/// The largest magnitude of several tensors; not finite if any value is not.
double largest_of(const variable_list& tensors) {
  double largest = 0;
  for (const at::Tensor& tensor : tensors) {
    const double value = largest_magnitude(tensor);
    if (!std::isfinite(value)) return value;
    largest = std::max(largest, value);
  }
  return largest;
}

/// Shared with the hooks that it adds to the graph, in case a graph outlives it.
class PassWatch : public CallObserver, public std::enable_shared_from_this<PassWatch> {
 public:
  explicit PassWatch(const PassRequest& request) : request_(request), ops_(request.known) {
    ops_.watch(request.ops);
  }

  PassReport run() {
    const ObserveCalls observe(*this);
    const at::AutoGradMode graph(request_.backward);
    const at::Tensor loss = request_.loss();
    end_forward(loss);
    if (request_.backward && loss.requires_grad() && !request_.parameters.empty())
      differentiate(loss);
    return std::move(report_);
  }

  void before(const std::string& path, const torch::nn::Module& module,
              const std::vector<at::Tensor>& inputs) override {
    for (const at::Tensor& input : inputs) claim(input, here().path);
    if (!backward_ && !report_.forward) {
      const LookAside aside;
      const auto bad = std::ranges::find_if(inputs, [&](const at::Tensor& x) {
        return !is_finite(x) && ops_.find_bad(x) == nullptr;
      });
      if (bad != inputs.end()) blame(here(), *bad);
    }
    calls_.push_back({path, module.name(), ops_.mark()});
  }

  void after(const std::string& path, const torch::nn::Module&,
             const std::vector<at::Tensor>& outputs) override {
    for (const at::Tensor& output : outputs) claim(output, path);
    if (!backward_) look_at(outputs);
    calls_.pop_back();
  }

  /// Called after a node of the graph has run.
  void node_ran(const Node& node, const std::string& module, const variable_list& received,
                const variable_list& returned) {
    const LookAside aside;
    if (report_.backward) return;
    GradientRow row{module, graph_node_name(node), largest_of(received), largest_of(returned)};
    if (!std::isfinite(row.received)) {
      blame_node(row, "a sum of gradients that meet at " + row.node, {}, received);
    } else if (!std::isfinite(row.returned)) {
      blame_node(row, row.node, received, returned);
    } else {
      ops_.forget(0);
    }
    report_.trace.push_back(std::move(row));
  }

 private:
  struct Call {
    std::string path, type;
    size_t since = 0;  // number of sources at its start
  };

  class NodeHook : public torch::autograd::FunctionPostHook {
   public:
    NodeHook(std::weak_ptr<PassWatch> watch, const Node& node, std::string module)
        : watch_(std::move(watch)), node_(node), module_(std::move(module)) {}
    variable_list operator()(const variable_list& outputs, const variable_list& inputs) override {
      if (const auto watch = watch_.lock()) watch->node_ran(node_, module_, inputs, outputs);
      return outputs;
    }

   private:
    std::weak_ptr<PassWatch> watch_;
    const Node& node_;
    std::string module_;
  };

  /// The innermost running call; an empty path outside any call.
  const Call& here() const {
    static const Call outside;
    return calls_.empty() ? outside : calls_.back();
  }

  /// Assigns every node behind `tensor` that has no module yet to `module`.
  void claim(const at::Tensor& tensor, const std::string& module) {
    if (!request_.backward) return;
    visit_new_nodes(tensor, claimed_, [&](Node& node) {
      node.add_post_hook(std::make_unique<NodeHook>(weak_from_this(), node, module));
    });
  }

  void look_at(const std::vector<at::Tensor>& outputs) {
    const LookAside aside;
    for (const at::Tensor& output : outputs) {
      if (!at::isFloatingType(output.scalar_type())) continue;
      const double largest = largest_magnitude(output);
      report_.modules.push_back({here().path, output.scalar_type(), largest, sample_of(output)});
      if (!report_.output && !std::isfinite(largest))
        report_.output = {here().path, output.sizes().vec(), first_bad_index(output)};
      if (!report_.forward && !std::isfinite(largest)) blame(here(), output);
    }
    if (!report_.forward) ops_.forget(here().since);
  }

  /// `value` is not finite; an op or a loop of lft's own produced it in `call`.
  void blame(const Call& call, const at::Tensor& value) {
    BadValue bad;
    if (const BadValue* op = ops_.first(call.since)) {
      bad = *op;
    } else {
      bad.op = value.grad_fn() != nullptr ? graph_node_name(*value.grad_fn()) : call.type;
      bad.value = tensor_facts(value);
      bad.inputs_known = false;
      const auto own = [&](const NamedTensor& each) {
        return each.name.starts_with(call.path + ".") && !is_finite(each.tensor);
      };
      const auto found = std::ranges::find_if(request_.known, own);
      if (!call.path.empty() && found != request_.known.end()) bad.from = found->name;
    }
    bad.module = call.path;
    report_.forward = std::move(bad);
    ops_.watch(false);
  }

  void end_forward(const at::Tensor& loss) {
    claim(loss, "");
    calls_.clear();
    const LookAside aside;
    report_.loss = loss.item<double>();
    if (!report_.forward && !std::isfinite(report_.loss)) blame(here(), loss);
    ops_.forget(0);
    ops_.watch(request_.ops);
    backward_ = true;
  }

  void differentiate(const at::Tensor& loss) {
    std::vector<at::Tensor> parameters;
    for (const NamedTensor& parameter : request_.parameters) parameters.push_back(parameter.tensor);
    const at::Tensor scaled = loss * request_.loss_scale;
    claim(scaled, "");
    const variable_list gradients = torch::autograd::grad(
        {scaled}, parameters, {}, std::nullopt, /*create_graph=*/false, /*allow_unused=*/true);
    const LookAside aside;
    double squares = 0;
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined()) continue;
      if (!is_finite(gradients[i]))
        report_.gradients.push_back({request_.parameters[i].name, tensor_facts(gradients[i])});
      squares += gradients[i].to(at::kDouble).pow(2).sum().item<double>();
    }
    report_.gradient_norm = std::sqrt(squares) / request_.loss_scale;
  }

  void blame_node(const GradientRow& row, const std::string& maker, const variable_list& received,
                  const variable_list& values) {
    const at::Tensor& value = *std::ranges::find_if_not(values, is_finite);
    BadValue bad{.module = row.module, .op = maker, .value = tensor_facts(value)};
    for (const at::Tensor& gradient : received) {
      if (gradient.defined()) bad.inputs.push_back({{}, tensor_facts(gradient)});
    }
    bad.inputs_known = !bad.inputs.empty();
    if (const BadValue* op = ops_.first(0)) {
      bad.inner = op->op;
      bad.from = op->from;
      bad.hints = op->hints;
    }
    report_.backward = std::move(bad);
    ops_.watch(false);
  }

  const PassRequest& request_;
  OpWatch ops_;
  PassReport report_;
  std::vector<Call> calls_;  // calls that are running
  bool backward_ = false;
  KnownNodes claimed_;
};

}  // namespace

PassReport watch_pass(const PassRequest& request) {
  return std::make_shared<PassWatch>(request)->run();
}

}  // namespace lft::train
