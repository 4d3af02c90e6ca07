#include "src/hf/exports/clients.h"

#include <algorithm>
#include <array>
#include <set>

#include "kernels/common/error.h"
#include "models/lora/registry.h"
#include "src/base/text.h"
#include "src/hf/adapter/adapter_files.h"
#include "src/hf/interop/interop.h"
#include "src/hf/tied_head.h"

namespace lft::hf {
namespace {

constexpr std::string_view kDecoder = "language_model.model.layers.";
constexpr int64_t kVllmRank = 16;  // default of --max-lora-rank

struct Client {
  Target target;
  const char* name;
  const char* version;
};
constexpr Client kClients[] = {
    {Target::kPeft, "peft", "PEFT 0.21.2"},
    {Target::kVllm, "vllm", "vLLM 0.33"},
    {Target::kSglang, "sglang", "SGLang 0.5.23"},
    {Target::kGguf, "gguf", "llama.cpp (b11549)"},
};

/// Properties of an adapter that not every client supports.
enum class Trait {
  kNoLora,      // only fully fine-tuned parts
  kOwnTensors,  // a variant with further tensors than A and B
  kWhole,       // modules_to_save
  kOwnScale,    // a variant of A and B whose scale is not alpha / r
  kPatterns,    // rank_pattern, alpha_pattern
  kHead,        // LoRA on the LM head
  kEmbedding,   // LoRA on the token embedding
  kTower,       // LoRA on vision tower or projector
  kExperts,     // LoRA on the experts of a mixture
  kSpelling,    // LoRA on a vision tower under the names of transformers 5.6
  kExpression,  // target_modules is an expression
  kRank,        // a rank above 16
  kGroup,       // LoRA on a part of a product that the server fuses
};

enum class Does { kReads, kIgnores, kRefuses };
struct Cell {
  Does does = Does::kReads;
  const char* remedy = "";  // "": no remedy
  bool blocks = false;
};
struct Row {
  Trait trait;
  std::array<Cell, 4> cells;  // in the order of kClients
};

constexpr const char* kMerges = "lft export merges it into the base next to the adapter";
constexpr const char* kBakes = "lft export multiplies it into B, at one rank";
constexpr const char* kRenames = "lft export writes full names";
constexpr const char* kFills = "lft export adds the others, of zeros";
const Cell kTakes{}, kRejects{.does = Does::kRefuses, .blocks = true};

const std::array<Row, 13> kRows = {{
    {Trait::kNoLora, {kRejects, kRejects, kRejects, Cell{Does::kIgnores, kMerges}}},
    {Trait::kOwnTensors, {kTakes, kRejects, kRejects, kRejects}},
    {Trait::kWhole,
     {kTakes, Cell{Does::kRefuses, kMerges}, Cell{Does::kIgnores, kMerges},
      Cell{Does::kIgnores, kMerges}}},
    {Trait::kOwnScale,
     {kTakes, kTakes, Cell{Does::kIgnores, kBakes}, Cell{Does::kIgnores, kBakes}}},
    {Trait::kPatterns,
     {kTakes, kTakes, Cell{Does::kIgnores, kBakes}, Cell{Does::kIgnores, kBakes}}},
    {Trait::kHead, {kTakes, kTakes, Cell{Does::kIgnores, kMerges}, Cell{Does::kIgnores, kMerges}}},
    {Trait::kEmbedding,  // supported by vLLM only for the few decoders that list their embeddings
     {kTakes, Cell{Does::kIgnores, kMerges}, Cell{Does::kIgnores, kMerges},
      Cell{Does::kIgnores, kMerges}}},
    {Trait::kTower,
     {kTakes, Cell{Does::kIgnores, "serve it with --enable-tower-connector-lora"},
      Cell{Does::kRefuses, kMerges}, Cell{Does::kIgnores, kMerges}}},
    {Trait::kExperts,  // vLLM drops it from PEFT's form of an adapter, without an error
     {kTakes, Cell{Does::kIgnores, kMerges}, kRejects, kRejects}},
    {Trait::kSpelling, {kTakes, Cell{Does::kIgnores, kRenames}, kTakes, kTakes}},
    {Trait::kExpression, {kTakes, kTakes, Cell{Does::kRefuses, kRenames}, kTakes}},
    {Trait::kRank, {kTakes, Cell{Does::kRefuses, "serve it with --max-lora-rank"}, kTakes, kTakes}},
    {Trait::kGroup, {kTakes, kTakes, Cell{Does::kRefuses, kFills}, kTakes}},
}};

/// Layers that SGLang fuses. LoRA on any of `members` requires LoRA on `needed`.
struct Group {
  std::vector<std::string> members, needed;
};
const std::array<Group, 2> kGroups = {{
    {.members = {"q_proj", "k_proj", "v_proj"}, .needed = {"q_proj", "v_proj"}},
    {.members = {"gate_proj", "up_proj"}, .needed = {"gate_proj"}},
}};

bool any_module(const AdapterDir& dir, const std::function<bool(const std::string&)>& is) {
  return std::ranges::any_of(dir.lora_modules, is);
}

bool is_head(const std::string& module) { return module == kHead; }
bool is_embedding(const std::string& module) { return module == kEmbedding; }
bool is_of_experts(const std::string& module) {
  return module.find(".mlp.experts.") != std::string::npos;
}

bool newest_spelling(const AdapterDir& dir, const family::Family& family) {
  return any_module(dir, [&](const std::string& module) {
    const std::string newest = family.names.whole_name(module);
    if (newest == family.names.peft_name(module)) return false;
    return dir.stored_names.at(module + ".lora_A.weight").find("." + newest + ".") !=
           std::string::npos;
  });
}

/// Describes the trait in this adapter; empty if the adapter does not have it.
std::string found(Trait trait, const AdapterDir& dir, const family::ModelConfig& config) {
  const lora::Variant& variant = lora::find_variant(dir.lora.variant);
  const bool own_tensors = !lora::further_tensors(variant).empty();
  const int64_t rank = largest_rank(dir.lora, dir.lora_modules);
  switch (trait) {
    case Trait::kNoLora:
      return dir.lora_modules.empty() ? "fully fine-tuned parts without LoRA" : "";
    case Trait::kOwnTensors:
      return own_tensors ? variant.peft_flag : "";
    case Trait::kWhole:
      return dir.full_tensors.empty() || dir.parts
                 ? ""
                 : "modules_to_save: " + join(dir.modules_to_save, ", ", 5);
    case Trait::kOwnScale:
      return own_tensors ? "" : variant.peft_flag;
    case Trait::kPatterns:
      return dir.lora.own.empty() ? "" : "rank_pattern, alpha_pattern";
    case Trait::kHead:
      return any_module(dir, is_head) ? "LoRA on the LM head" : "";
    case Trait::kEmbedding:
      return any_module(dir, is_embedding) ? "LoRA on the embedding" : "";
    case Trait::kTower:
      return any_module(dir, [](const auto& m) { return lora::scope_of(m) != "llm"; })
                 ? "LoRA on vision tower or projector"
                 : "";
    case Trait::kExperts:
      return any_module(dir, is_of_experts) ? "LoRA on experts" : "";
    case Trait::kSpelling:
      return newest_spelling(dir, *config.family)
                 ? "the vision tower's spelling of transformers 5.6"
                 : "";
    case Trait::kExpression:
      return dir.named_by_pattern ? "target_modules: an expression" : "";
    case Trait::kRank:
      return !dir.lora_modules.empty() && rank > kVllmRank ? "rank " + std::to_string(rank) : "";
    case Trait::kGroup: {
      const std::vector<std::string> lacking = lacking_of_groups(dir.lora_modules);
      return lacking.empty() ? "" : "LoRA without its neighbours " + join(lacking, ", ", 3);
    }
  }
  return "";
}

}  // namespace

Target target_of(const std::string& name) {
  for (const Client& client : kClients) {
    if (name == client.name) return client.target;
  }
  refuse(ErrorKind::kUsage, "unknown target", "--target", name, "peft, vllm, sglang or gguf");
}

std::string target_name(Target target) { return kClients[static_cast<size_t>(target)].name; }
std::string client_of(Target target) { return kClients[static_cast<size_t>(target)].version; }

std::vector<Finding> findings(Target target, const AdapterDir& dir,
                              const family::ModelConfig& config) {
  std::vector<Finding> list;
  const bool served = target == Target::kSglang || target == Target::kGguf;
  const Server server = target == Target::kSglang ? Server::kSglang : Server::kLlamaCpp;
  if (const std::string why = served ? why_not_served(server, config) : ""; !why.empty())
    list.push_back({.what = config.family->name,
                    .does = "is refused: " + why,
                    .remedy = {},
                    .blocks = true,
                    .of_model = true});
  for (const Row& row : kRows) {
    const Cell& cell = row.cells[static_cast<size_t>(target)];
    const std::string what = cell.does == Does::kReads ? "" : found(row.trait, dir, config);
    if (what.empty()) continue;
    std::string remedy = cell.remedy;
    if (row.trait == Trait::kRank)
      remedy += " " + std::to_string(served_rank(largest_rank(dir.lora, dir.lora_modules)));
    list.push_back({.what = what,
                    .does = cell.does == Does::kRefuses ? "is refused" : "is ignored",
                    .remedy = remedy,
                    .blocks = cell.blocks});
  }
  return list;
}

bool stays_adapter(Target target, const std::string& module) {
  if (target == Target::kPeft) return true;
  if (is_of_experts(module)) return false;
  return module.starts_with(kDecoder) || (target == Target::kVllm && !is_embedding(module));
}

std::vector<std::string> lacking_of_groups(const std::vector<std::string>& modules) {
  const std::set<std::string> present(modules.begin(), modules.end());
  std::set<std::string> lacking;
  for (const std::string& module : modules) {
    if (!module.starts_with(kDecoder)) continue;
    const size_t dot = module.rfind('.') + 1;
    for (const Group& group : kGroups) {
      if (std::ranges::find(group.members, module.substr(dot)) == group.members.end()) continue;
      for (const std::string& other : group.needed) {
        const std::string name = module.substr(0, dot) + other;
        if (!present.contains(name)) lacking.insert(name);
      }
    }
  }
  return {lacking.begin(), lacking.end()};
}

int64_t served_rank(int64_t rank) {
  for (const int64_t allowed : {16, 32, 64, 128, 256, 320, 512}) {
    if (rank <= allowed) return allowed;
  }
  return rank;
}

int64_t largest_rank(const lora::LoraOptions& lora, const std::vector<std::string>& modules) {
  int64_t rank = 0;
  for (const std::string& module : modules) rank = std::max(rank, lora.of(module).rank);
  return rank;
}

}  // namespace lft::hf
