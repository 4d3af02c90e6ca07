#include "src/train/proof/proof.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "kernels/common/error.h"
#include "models/family/model.h"
#include "models/lora/inject_select.h"
#include "models/lora/trained_modules.h"
#include "src/base/phase.h"
#include "src/base/text.h"
#include "src/train/machine/precision.h"
#include "src/train/proof/dead_cause.h"
#include "src/train/proof/proof_owners.h"
#include "src/train/proof/proof_probe.h"

namespace lft::train {
namespace {

constexpr size_t kShownNames = 8;

std::vector<std::string> names_of(const std::vector<lora::TrainedModule>& modules) {
  std::vector<std::string> names;
  for (const lora::TrainedModule& module : modules) names.push_back(module.name);
  return names;
}

std::vector<std::string> probe_ids(const Probe& probe) {
  std::vector<std::string> ids;
  for (const data::Sample& sample : probe.samples) ids.push_back(sample.id);
  return ids;
}

/// For example "llm: down_proj, gate_proj, ...; projector: linear_1, linear_2; ...".
std::string linear_names(torch::nn::Module& model) {
  std::map<std::string, std::set<std::string>> scopes;
  for (const lora::LinearSite& site : lora::linear_sites(model))
    scopes[site.scope].insert(site.name.substr(site.name.rfind('.') + 1));
  std::vector<std::string> parts;
  for (const auto& [scope, names] : scopes)
    parts.push_back(scope + ": " + join({names.begin(), names.end()}, ", ", 12));
  return join(parts, "; ");
}

[[noreturn]] void fail_with_nothing(torch::nn::Module& model,
                                    const std::vector<ExcludedModule>& excluded) {
  if (excluded.empty()) {
    refuse(ErrorKind::kUsage, "nothing is trainable", "lora.targets and full",
           "no tensor that requires a gradient", "layers of " + linear_names(model),
           "set lora.targets, for example [\"llm:all-linear\"]");
  }
  std::vector<std::string> names;
  for (const ExcludedModule& module : excluded) names.push_back(module.name);
  refuse(ErrorKind::kUsage, "nothing is trainable: every chosen module is one that can never learn",
         join(names, ", ", kShownNames), excluded.front().reason,
         "layers of " + linear_names(model) + " that the loss depends on",
         "choose others in lora.targets or full");
}

void check_reached(const std::vector<lora::TrainedModule>& modules,
                   const std::vector<lora::Trainable>& trainables, const ProbeGradients& gradients,
                   const Probe& probe) {
  std::vector<std::string> missing;
  for (const lora::TrainedModule& module : modules) {
    for (const size_t member : module.members) {
      if (!gradients.reached[member]) missing.push_back(trainables[member].name);
    }
  }
  if (missing.empty()) return;
  refuse(ErrorKind::kUsage, "the loss does not depend on a tensor that is to be trained",
         join(missing, ", ", kShownNames),
         "no gradient reaches " + std::to_string(missing.size()) + " of " +
             std::to_string(trainables.size()) + " tensors",
         "a path from each to the loss of samples " + join_names(probe_ids(probe), kShownNames),
         "take them out of lora.targets and full, or fix the model that cuts them off");
}

bool is_zero(const at::Tensor& tensor) { return !tensor.any().item<bool>(); }

/// Whether the module will change. An adapter's A has no gradient while B is zero, and vice versa.
bool is_alive(const lora::TrainedModule& module, const std::vector<lora::Trainable>& trainables,
              const std::vector<double>& norms) {
  if (!module.adapter()) {
    return std::any_of(module.members.begin(), module.members.end(),
                       [&](size_t member) { return norms[member] > 0; });
  }
  const double a = norms[module.a], b = norms[module.b];
  if (a == 0 && b == 0) return false;
  return (a > 0 || is_zero(trainables[module.b].tensor)) &&
         (b > 0 || is_zero(trainables[module.a].tensor));
}

[[noreturn]] void fail_with_dead(family::Model& model, const std::vector<lora::TrainedModule>& dead,
                                 size_t modules, const Probe& probe, bool b_moved) {
  std::vector<lora::TrainedModule> adapters, whole;
  for (const lora::TrainedModule& module : dead)
    (module.adapter() ? adapters : whole).push_back(module);
  const bool adapter = !adapters.empty();
  const std::string cause = dead_cause(model, probe, (adapter ? adapters : whole).front().name);
  refuse(ErrorKind::kUsage,
         b_moved ? "an adapter would learn no further than B: with B off zero the gradient of its "
                   "A is exactly zero"
         : adapter ? "an adapter cannot learn: its gradient is exactly zero"
                   : "a module trained whole cannot learn: its gradient is exactly zero",
         join(names_of(adapter ? adapters : whole), ", ", kShownNames),
         std::to_string(dead.size()) + " of " + std::to_string(modules) +
             " modules, in FP32 too, on samples " + join_names(probe_ids(probe), kShownNames) +
             (cause.empty() ? "" : "; " + cause),
         adapter ? "a gradient on B (and on A, where B is not zero)"
                 : "a gradient on one of its tensors",
         cause.empty()
             ? "look for frozen weights of zeros around it (lft debug base), or take it out "
               "of lora.targets and full"
             : "fix the base where it gives zeros only (lft debug base), or take the "
               "module out of lora.targets and full");
}

std::vector<at::Tensor> trained_tensors(const std::vector<Owner>& owners) {
  std::vector<at::Tensor> tensors;
  for (const Owner& owner : owners) tensors.push_back(owner.tensor);
  return tensors;
}

/// Modules without a gradient under a finite probe. Small gradients underflow in low precision, so
/// FP32 decides; `gradients` then gets its norms for the modules with a gradient there, and
/// `underflowed` their number.
std::vector<lora::TrainedModule> dead_modules(
    const std::vector<lora::TrainedModule>& modules, const std::vector<lora::Trainable>& trainables,
    const Probe& probe, const std::function<ProbeGradients(const Probe&)>& run,
    ProbeGradients& gradients, int64_t& underflowed) {
  if (!gradients.finite) return {};
  std::vector<lora::TrainedModule> dead = modules;
  const auto drop_living = [&](const std::vector<double>& norms) {
    std::erase_if(dead, [&](const lora::TrainedModule& module) {
      return is_alive(module, trainables, norms);
    });
  };
  drop_living(gradients.norms);
  if (dead.empty() || probe.compute == at::kFloat) return dead;
  const ProbeGradients wide = run(in_fp32(probe));
  if (!wide.finite) return {};
  const std::vector<lora::TrainedModule> suspects = dead;
  drop_living(wide.norms);
  for (const lora::TrainedModule& module : suspects) {
    for (const size_t member : module.members) gradients.norms[member] = wide.norms[member];
  }
  underflowed += static_cast<int64_t>(suspects.size() - dead.size());
  return dead;
}

ProofRow make_row(const lora::TrainedModule& module, const std::vector<lora::Trainable>& trainables,
                  const std::vector<Owner>& owners, const ProbeGradients& gradients) {
  const size_t first = module.members.front();
  ProofRow row{.module = module.name,
               .scope = trainables[first].scope,
               .dtype = compute_name(trainables[first].tensor.scalar_type()),
               .group = owners[first].group,
               .adapter = module.adapter(),
               .lr = owners[first].lr,
               .lr_b = owners[module.adapter() ? module.b : first].lr,
               .reachable = true};
  if (row.adapter && owners[module.b].group != row.group)
    row.group += ", " + owners[module.b].group;
  double squares = 0;
  for (const size_t member : module.members) {
    row.parameters += trainables[member].tensor.numel();
    row.reachable = row.reachable && gradients.reached[member];
    squares += gradients.norms[member] * gradients.norms[member];
  }
  row.grad_norm_a = row.adapter ? gradients.norms[module.a] : 0;
  row.grad_norm_b = row.adapter ? gradients.norms[module.b] : std::sqrt(squares);
  return row;
}

/// Makes every zero B non-zero for its lifetime, by a fixed pattern without a generator.
class MovedB {
 public:
  explicit MovedB(const std::vector<at::Tensor>& zeros) {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& b : zeros) {
      kept_.emplace_back(b, b.detach().clone());
      b.copy_(at::arange(b.numel(), b.options().requires_grad(false))
                  .mul_(0.7)
                  .sin_()
                  .mul_(1e-3)
                  .view(b.sizes()));
    }
  }
  ~MovedB() {
    const at::NoGradGuard no_grad;
    for (auto& [b, bits] : kept_) b.copy_(bits);
  }
  MovedB(const MovedB&) = delete;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> kept_;
};

}  // namespace

TrainabilityReport check_trainable(family::Model& model,
                                   const std::vector<lora::Trainable>& trainables,
                                   const std::vector<Optimizer*>& optimizers,
                                   const std::vector<ExcludedModule>& excluded,
                                   const Probe& probe) {
  if (trainables.empty()) fail_with_nothing(*model, excluded);
  const std::vector<Owner> owners = prove_ownership(*model, trainables, optimizers);
  const std::vector<lora::TrainedModule> modules = lora::trained_modules(trainables);
  const auto run = [&](const Probe& how) {
    return probe_gradients(model, trained_tensors(owners), how);
  };
  const Phase phase("trainability check");
  const auto start = std::chrono::steady_clock::now();
  const double before_s = model->kept_features().seconds;
  ProbeGradients gradients = run(probe);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  check_reached(modules, trainables, gradients, probe);
  TrainabilityReport proof{.rows = {},
                           .excluded = excluded,
                           .probe_ids = probe_ids(probe),
                           .probe_loss = gradients.loss,
                           .pass_s = taken.count() - (model->kept_features().seconds - before_s),
                           .probe_finite = gradients.finite,
                           .compute = compute_name(probe.compute),
                           .loss_scale = gradients.loss_scale};
  const std::vector<lora::TrainedModule> dead =
      dead_modules(modules, trainables, probe, run, gradients, proof.underflowed);
  if (!dead.empty()) fail_with_dead(model, dead, modules.size(), probe, /*b_moved=*/false);
  for (const lora::TrainedModule& module : modules)
    proof.rows.push_back(make_row(module, trainables, owners, gradients));
  for (const at::Tensor& parameter : model->parameters()) proof.total += parameter.numel();
  for (const lora::Trainable& trainable : trainables) proof.trainable += trainable.tensor.numel();
  return proof;
}

void prove_second_step(family::Model& model, const std::vector<lora::Trainable>& trainables,
                       const Probe& probe, TrainabilityReport& proof) {
  std::vector<lora::TrainedModule> adapters = lora::trained_modules(trainables);
  std::erase_if(adapters, [&](const lora::TrainedModule& module) {
    return !module.adapter() || !is_zero(trainables[module.b].tensor);
  });
  if (adapters.empty()) return;
  std::vector<at::Tensor> tensors, zeros;
  for (const lora::Trainable& trainable : trainables) tensors.push_back(trainable.tensor);
  for (const lora::TrainedModule& module : adapters) zeros.push_back(trainables[module.b].tensor);
  const Phase phase("trainability check of the second step");
  const MovedB moved(zeros);
  const auto run = [&](const Probe& how) { return probe_gradients(model, tensors, how); };
  ProbeGradients gradients = run(probe);
  proof.probe_finite = proof.probe_finite && gradients.finite;
  const std::vector<lora::TrainedModule> dead =
      dead_modules(adapters, trainables, probe, run, gradients, proof.underflowed);
  if (!dead.empty()) fail_with_dead(model, dead, adapters.size(), probe, /*b_moved=*/true);
  for (ProofRow& row : proof.rows) {
    const auto at = std::ranges::find(adapters, row.module, &lora::TrainedModule::name);
    if (at != adapters.end()) row.grad_norm_a = gradients.norms[at->a];
  }
}

}  // namespace lft::train
