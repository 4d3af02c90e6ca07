#include "src/train/proof/proof_owners.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "kernels/common/error.h"
#include "src/base/text.h"

namespace lft::train {
namespace {

constexpr size_t kShownOwners = 8;

/// The bytes a tensor spans on its device, from its first element to after its last.
struct MemoryRange {
  std::string device;
  uintptr_t begin = 0, end = 0;
  bool operator<(const MemoryRange& other) const {
    return std::tie(device, begin, end) < std::tie(other.device, other.begin, other.end);
  }
  std::string text() const {
    char bytes[64];
    std::snprintf(bytes, sizeof bytes, "bytes %#zx to %#zx", static_cast<size_t>(begin),
                  static_cast<size_t>(end));
    return bytes;
  }
};

MemoryRange range_of(const at::Tensor& tensor) {
  MemoryRange range{tensor.device().str(), reinterpret_cast<uintptr_t>(tensor.const_data_ptr()), 0};
  int64_t elements = tensor.numel() == 0 ? 0 : 1;
  for (int64_t i = 0; elements > 0 && i < tensor.dim(); ++i)
    elements += (tensor.size(i) - 1) * tensor.stride(i);
  range.end = range.begin + static_cast<uintptr_t>(elements) * tensor.element_size();
  return range;
}

std::vector<Owner> all_owners(const std::vector<Optimizer*>& optimizers) {
  std::vector<Owner> owners;
  for (size_t i = 0; i < optimizers.size(); ++i) {
    const std::string prefix = optimizers.size() > 1 ? std::to_string(i + 1) + "/" : "";
    for (const ParamGroup& group : optimizers[i]->groups()) {
      for (const size_t member : group.members) {
        const lora::Trainable& param = optimizers[i]->slots().at(member).param;
        owners.push_back({param.name, prefix + group.name, group.lr, param.tensor});
      }
    }
  }
  return owners;
}

void check_frozen(const std::vector<lora::Trainable>& trainables,
                  const std::vector<Owner>& owners) {
  std::vector<std::string> frozen;
  for (const lora::Trainable& trainable : trainables) {
    if (!trainable.tensor.requires_grad()) frozen.push_back(trainable.name);
  }
  for (const Owner& owner : owners) {
    if (!owner.tensor.requires_grad() &&
        std::find(frozen.begin(), frozen.end(), owner.name) == frozen.end())
      frozen.push_back(owner.name);
  }
  if (frozen.empty()) return;
  refuse(ErrorKind::kUsage, "a tensor that is to be trained is frozen",
         join(frozen, ", ", kShownOwners),
         std::to_string(frozen.size()) + " tensors with requires_grad off, which get no gradient",
         "requires_grad on every trainable tensor",
         "unfreeze them, or leave them out of lora.targets and full");
}

void check_single_owners(const std::vector<Owner>& owners) {
  std::vector<std::pair<MemoryRange, const Owner*>> ranges;
  for (const Owner& owner : owners) ranges.emplace_back(range_of(owner.tensor), &owner);
  std::sort(ranges.begin(), ranges.end());
  const std::pair<MemoryRange, const Owner*>* widest =
      nullptr;  // of the preceding ones, the one with the largest end
  for (const auto& entry : ranges) {
    const MemoryRange& range = entry.first;
    if (range.begin == range.end) continue;
    if (widest != nullptr && widest->first.device == range.device &&
        range.begin < widest->first.end) {
      refuse(ErrorKind::kUsage, "two optimizer groups own the same memory",
             widest->second->name + " and " + entry.second->name,
             "group " + widest->second->group + " owns " + widest->first.text() + ", group " +
                 entry.second->group + " owns " + range.text(),
             "every tensor in one group of one optimizer, without overlaps",
             "take it out of one of them");
    }
    if (widest == nullptr || widest->first.device != range.device || widest->first.end < range.end)
      widest = &entry;
  }
}

std::map<MemoryRange, std::string> model_ranges(const torch::nn::Module& model) {
  std::map<MemoryRange, std::string> ranges;
  for (const auto& parameter : model.named_parameters())
    ranges.try_emplace(range_of(parameter.value()), parameter.key());
  return ranges;
}

void check_stale(const std::vector<Owner>& owners, const std::map<MemoryRange, std::string>& used) {
  std::vector<std::string> stale;
  for (const Owner& owner : owners) {
    if (!used.contains(range_of(owner.tensor))) stale.push_back(owner.name);
  }
  if (stale.empty()) return;
  refuse(ErrorKind::kUsage, "an optimizer has tensors that the model no longer uses",
         join(stale, ", ", kShownOwners),
         std::to_string(stale.size()) + " of its " + std::to_string(owners.size()) +
             " tensors are outside the model's parameters",
         "the memory of the model's own parameters",
         "make the optimizer after the model is loaded, adapted and cast, not before");
}

void check_masters(const std::vector<Owner>& owners) {
  for (const Owner& owner : owners) {
    if (owner.tensor.scalar_type() == at::kFloat) continue;
    refuse(ErrorKind::kUsage, "a trainable tensor is not an FP32 master", owner.name,
           c10::toString(owner.tensor.scalar_type()), "Float",
           "cast the frozen weights only; trainable tensors stay FP32 whatever precision.compute "
           "says");
  }
}

void check_owned(const torch::nn::Module& model, const std::vector<lora::Trainable>& trainables,
                 const std::map<MemoryRange, const Owner*>& owners) {
  std::vector<std::pair<std::string, at::Tensor>> wanted;
  for (const lora::Trainable& trainable : trainables)
    wanted.emplace_back(trainable.name, trainable.tensor);
  for (const auto& parameter : model.named_parameters()) {
    if (parameter.value().requires_grad()) wanted.emplace_back(parameter.key(), parameter.value());
  }
  std::vector<std::string> orphans;
  std::set<MemoryRange> seen;  // a trainable and its name in the model
  for (const auto& [name, tensor] : wanted) {
    const MemoryRange range = range_of(tensor);
    if (!owners.contains(range) && seen.insert(range).second) orphans.push_back(name);
  }
  if (orphans.empty()) return;
  refuse(ErrorKind::kUsage, "no optimizer owns a parameter that requires a gradient",
         join(orphans, ", ", kShownOwners),
         std::to_string(orphans.size()) + " parameters in addition to the " +
             std::to_string(owners.size()) + " that are owned",
         "every such parameter in one group of one optimizer",
         "give it to the optimizer, or freeze it");
}

}  // namespace

std::vector<Owner> prove_ownership(const torch::nn::Module& model,
                                   const std::vector<lora::Trainable>& trainables,
                                   const std::vector<Optimizer*>& optimizers) {
  const std::vector<Owner> owners = all_owners(optimizers);
  check_frozen(trainables, owners);
  check_single_owners(owners);
  check_stale(owners, model_ranges(model));
  check_masters(owners);
  std::map<MemoryRange, const Owner*> by_range;
  for (const Owner& owner : owners) by_range.emplace(range_of(owner.tensor), &owner);
  check_owned(model, trainables, by_range);
  std::vector<Owner> result;
  for (const lora::Trainable& trainable : trainables)
    result.push_back(*by_range.at(range_of(trainable.tensor)));
  return result;
}

}  // namespace lft::train
