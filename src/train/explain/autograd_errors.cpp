#include "src/train/explain/autograd_errors.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "models/base/call.h"
#include "src/train/machine/device.h"

namespace lft::train {
namespace {

struct Rule {
  std::string_view text;  // as it appears in LibTorch's message
  const char *what, *expected, *next;
};

constexpr const char* kSavedChanged =
    "a tensor was changed in place after an op had saved it for the backward pass";
constexpr const char* kSavedExpected =
    "tensors that stay as they are from the forward to the backward pass";
constexpr const char* kSavedNext =
    "use the op without the underscore, or clone() the tensor before changing it";
constexpr std::array kRules = {
    Rule{"leaf Variable that requires grad",
         "a trainable tensor was changed in place while its gradient is recorded",
         "trainables that nothing but the optimizer changes, between two steps",
         "use the op without the underscore (y = x.mul(2), not x.mul_(2)); a change that is meant, "
         "such as an initialisation, belongs "
         "under at::NoGradGuard before the first step"},
    Rule{"has been modified by an inplace operation", kSavedChanged, kSavedExpected, kSavedNext},
    Rule{"its base has been modified inplace", kSavedChanged, kSavedExpected, kSavedNext},
    Rule{"through the graph a second time",
         "a graph was to be differentiated a second time, after it was freed",
         "one backward pass a graph; nothing of a graph is kept for the next pass",
         "detach() what a module, hook or cache keeps from one pass to the next (retain_graph "
         "would keep every graph, which is a leak)"},
    Rule{"does not require grad and does not have a grad_fn",
         "a tensor without a graph was to be differentiated",
         "a tensor that hangs on a trainable by a graph",
         "take detach(), item(), at::NoGradGuard, c10::InferenceMode and casts to integers out of "
         "the way from the trainables to it"},
    Rule{"nference tensor", "a tensor made in inference mode was used in training",
         "tensors made outside c10::InferenceMode",
         "make it under at::NoGradGuard instead, or clone() it where inference mode is off"},
    Rule{"is a view and ", "a view was changed in place where autograd cannot follow",
         "in-place ops on tensors that are no view, or on the only view of a tensor",
         "clone() the view before changing it, or put the result together without in-place ops "
         "(at::cat, at::where, index_copy)"},
    Rule{"A view was created in ",
         "a view made without a graph was changed in place where one is recorded",
         "views made and changed in the same mode",
         "make the view outside at::NoGradGuard, or clone() it before changing it"},
    Rule{"returned an invalid gradient",
         "the backward function of an op returned a gradient that does not fit its input",
         "for each input of forward() a gradient of that input's shape, dtype and device, or an "
         "undefined tensor",
         "check the shapes in that op's backward(): a broadcast input needs its gradient summed"},
    Rule{"incorrect number of gradients",
         "the backward function of an op returned too few or too many gradients",
         "one gradient for each argument of forward(), in order, undefined where there is none",
         "return at::Tensor() for arguments that are no tensors or are not trained"},
    Rule{"must all be outputs of the Function",
         "an op marked an input as changed in place and did not return it",
         "every tensor given to mark_dirty() among the outputs of forward()",
         "return it, or do not change it in place"},
    Rule{"implicitly created only for scalar outputs",
         "the backward pass was to start at a tensor that is no scalar", "a loss of one element",
         "reduce it first, with sum() or mean()"},
    Rule{"change requires_grad flags of leaf variables",
         "requires_grad was set on a tensor that is the result of an op",
         "requires_grad_() on tensors that no graph made",
         "detach() it first, or set it on the parameter itself"},
    Rule{"of floating point and complex dtype can require gradients",
         "an integer tensor was to be trained", "float32 trainables",
         "keep indices and masks out of register_parameter(), or register them with requires_grad "
         "off"},
    Rule{"is not implemented",
         "an op has no derivative, or does not exist for this dtype or device",
         "ops that can be differentiated here",
         "use another op, or write a torch::autograd::Function with a backward() of its own"},
    Rule{"of the differentiated Tensors",
         "a gradient was asked for that the graph does not lead to",
         "trainables that the loss hangs on",
         "look for the module that cuts the graph, or allow unused tensors"},
};

/// The first line of LibTorch's message, without its advice and stack trace.
std::string first_line(const std::exception& error) {
  const auto* torch = dynamic_cast<const c10::Error*>(&error);
  std::string text = torch != nullptr ? torch->msg() : error.what();
  text.resize(std::min(text.find('\n'), text.size()));
  text.resize(std::min(text.find(" Hint:"), text.size()));
  return text;
}

const Rule* rule_of(const std::string& text) {
  const auto found = std::ranges::find_if(
      kRules, [&](const Rule& rule) { return text.find(rule.text) != std::string::npos; });
  return found == kRules.end() ? nullptr : &*found;
}

/// For example "module a.b, backward pass, MulBackward0".
std::string place(const std::string& module, const PassTrace* trace) {
  std::string text = module.empty() ? "" : "module " + module;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (trace == nullptr) return text;
  if (!trace->failed) {
    add("it did not fail again when the pass was run once more: it depends on more than this "
        "batch");
    return text;
  }
  add(trace->backward ? "backward pass" : "forward pass");
  if (!trace->maker.empty())
    add(trace->maker + (trace->parameter.empty() ? "" : " on " + trace->parameter));
  if (!trace->changed_by.empty()) add("changed in place by " + trace->changed_by);
  return text;
}

std::string cut_text(const PassTrace& trace) {
  if (trace.cut_in.empty()) return "";
  return trace.graph_off
             ? "; no graph was recorded (at::NoGradGuard) in " + trace.cut_in
             : "; a graph or a trainable goes into " + trace.cut_in + " and none comes out";
}

}  // namespace

Error explain_torch_error(const std::exception& error, const PassTrace* trace) {
  const std::string text = first_line(error);
  const Rule* rule = rule_of(text);
  std::string module;
  if (const auto* torch = dynamic_cast<const c10::Error*>(&error)) module = module_path_of(*torch);
  if (trace != nullptr && module.empty()) module = trace->module;
  return Error(ErrorKind::kInternal,
               {.what = rule != nullptr ? rule->what : "LibTorch refused an operation",
                .where = place(module, trace),
                .found = text,
                .expected = rule != nullptr ? rule->expected : "",
                .next = rule != nullptr ? rule->next : ""});
}

void rethrow_explained(const std::exception& error, const torch::nn::Module& model,
                       const std::function<at::Tensor()>& forward, const at::Tensor& loss) {
  const auto* own = dynamic_cast<const Error*>(&error);
  const bool cut =
      own != nullptr && own->info().where.empty() && loss.defined() && loss.grad_fn() == nullptr;
  if ((own != nullptr && !cut) || is_out_of_memory(error)) throw;
  const PassTrace trace = trace_pass(model, forward);
  if (own == nullptr) throw explain_torch_error(error, &trace);
  ErrorInfo info = own->info();
  if (!trace.cut_in.empty()) info.where = "module " + trace.cut_in;
  info.found += cut_text(trace);
  throw Error(own->kind(), info);
}

}  // namespace lft::train
