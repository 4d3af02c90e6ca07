#include "src/hf/adapter/adapter.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "kernels/common/error.h"
#include "models/lora/registry.h"
#include "models/registry/registry.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/hf/adapter/adapter_files.h"
#include "src/hf/adapter/adapter_load.h"
#include "src/hf/adapter/adapter_notes.h"
#include "src/hf/adapter/adapter_parts.h"
#include "src/hf/adapter/expert_adapter.h"
#include "src/hf/adapter/peft_config.h"
#include "src/hf/adapter/peft_patterns.h"
#include "src/hf/model_dir_fingerprint.h"
#include "src/hf/shards.h"
#include "src/hf/tied_head.h"
#include "src/hf/weights.h"
#include "src/io/files.h"

namespace lft::hf {
namespace {

constexpr const char* kBaseCopy = "base_layer.weight";
const std::string kModel = "model.";  // transformers' model next to its LM head
constexpr const char* kRetry = "take both files from the same save_pretrained()";

/// A parsed key of the file. kind: the form of an adapter's tensor ("lora_A.weight"),
/// base_layer.weight, or "" for a fully saved tensor. tensor: the adapter's, "lora_A".
struct Key {
  std::string module, kind, tensor = {};
  bool embeds = false;  // LoRA on an embedding, which is transposed
};

/// PEFT's name of a tensor of LoRA on an embedding, and its counterpart for a linear layer with the
/// same weight.
constexpr std::pair<const char*, const char*> kEmbedded[] = {{"lora_embedding_B", "lora_A"},
                                                             {"lora_embedding_A", "lora_B"}};

Key split_key(const std::string& name) {
  for (const lora::AdapterTensor& tensor : lora::adapter_tensors()) {
    // A raw state_dict has the adapter's name between "lora_A" and "weight".
    for (const std::string& stored :
         {tensor.stored, tensor.name + ".weight", tensor.name + ".default.weight"}) {
      if (name.ends_with("." + stored))
        return {name.substr(0, name.size() - stored.size() - 1), tensor.stored, tensor.name};
    }
  }
  for (const auto& [stored, tensor] : kEmbedded) {
    for (const std::string& end :
         {"." + std::string(stored), "." + std::string(stored) + ".default"}) {
      if (name.ends_with(end))
        return {name.substr(0, name.size() - end.size()), std::string(tensor) + ".weight", tensor,
                true};
    }
  }
  // The second is a name that save_embedding_layers adds to a fully saved module.
  for (const std::string_view base : {".base_layer.weight", ".original_module.weight"}) {
    if (name.ends_with(base)) return {name.substr(0, name.size() - base.size()), kBaseCopy};
  }
  return {name, ""};
}

bool is_table(const std::string& tensor) {
  return tensor == kEmbedding + ".weight" || tensor == kHead + ".weight";
}

/// Every dialect of the family, also of a model without its LM head (AutoModel), and the language
/// model alone, with and without its head.
std::string canonical_name(const family::Family& family, const std::string& peft) {
  for (const std::string& whole : {peft, kModel + peft}) {
    const std::string canonical = family.names.from_peft_name(whole);
    if (!canonical.empty()) return canonical;
  }
  const std::string decoder = peft.starts_with(kModel) ? peft : kModel + peft;
  for (const char* part : {"model.layers.", "model.embed_tokens", "model.norm"}) {
    if (decoder.starts_with(part)) return "language_model." + decoder;
  }
  return "";
}

/// Never a tensor of a fully saved module.
bool is_lora_part(const std::string& name) { return name.find("lora_") != std::string::npos; }

bool declares(const lora::Variant& variant, const std::string& tensor) {
  return std::any_of(variant.tensors.begin(), variant.tensors.end(),
                     [&](const lora::AdapterTensor& each) { return each.name == tensor; });
}

/// The setting that an adapter with this tensor requires.
std::string flag_of(const std::string& tensor) {
  for (const lora::Variant& variant : lora::variants()) {
    if (declares(variant, tensor)) return variant.peft_flag;
  }
  return {};
}

const family::Family& family_of(const io::SafetensorsFile& file) {
  std::vector<std::string> modules;
  const size_t prefix = std::string(kPeftPrefix).size();
  for (const auto& [name, info] : file.tensors())
    if (name.starts_with(kPeftPrefix)) modules.push_back(split_key(name.substr(prefix)).module);
  const family::Family& family = registry::family_of_peft_names(modules);
  const auto is_known = [&](const std::string& module) {
    return !family.names.from_peft_name(module).empty();
  };
  if (std::ranges::any_of(modules, is_known)) return family;
  for (std::string& module : modules) module = kModel + module;
  return registry::family_of_peft_names(modules);
}

template <class Values>
std::vector<std::string> keys_of(const Values& values) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : values) keys.push_back(key);
  return keys;
}

class KeyReader {
 public:
  KeyReader(AdapterDir& dir, const io::SafetensorsFile& file, const PeftConfig& config,
            const std::string& where)
      : dir_(dir),
        file_(file),
        config_(config),
        family_(family_of(file)),
        where_(where),
        ranks_(keys_of(config.rank_pattern), where + ": rank_pattern"),
        alphas_(keys_of(config.alpha_pattern), where + ": alpha_pattern") {}

  void read() {
    check_parameters();
    for (const auto& [name, info] : file_.tensors()) place(name, info);
    refuse_unsupported();
    pair_up();
    const std::vector<Faults> faults = {unknown_, twice_, alone_, rank_, mistyped_};
    if (!any(faults)) return compare_targets();
    refuse(ErrorKind::kInput, "the adapter's tensors do not fit", file_.path(), describe(faults),
           "lora_A and lora_B of rank " + std::to_string(dir_.lora.rank) +
               (dir_.lora.own.empty() ? "" : ", or as rank_pattern says,") +
               " for modules of a model that lft reads, and the modules that modules_to_save names",
           any({twice_, alone_, rank_, mistyped_})
               ? kRetry
               : "give an adapter of a model that lft reads, with the names of transformers");
  }

 private:
  /// PEFT's target_parameters can adapt any tensor.
  void check_parameters() const {
    for (const std::string& parameter : config_.rule.parameters) {
      if (family_.names.is_experts(parameter) ||
          std::ranges::any_of(family_.names.experts, [&](const std::string& end) {
            return names_parameter({parameter}, end);
          }))
        continue;
      refuse(ErrorKind::kInput, "the adapter asks for something that is not supported",
             where_ + ": target_parameters", io::json_text(io::Json(config_.rule.parameters)),
             family_.names.experts.empty()
                 ? "PEFT's default (null), as a " + family_.name + " has no experts"
                 : "names of experts, of " + join(family_.names.experts));
    }
  }

  /// PEFT also adapts convolutions, with tensors of their dimensions, and any embedding.
  void refuse_unsupported() const {
    if (unsupported_.empty()) return;
    refuse(
        ErrorKind::kInput, "the adapter asks for something that is not supported", file_.path(),
        describe({{"convolutions or embeddings of positions with LoRA",
                   {unsupported_.begin(), unsupported_.end()}}}),
        "LoRA on linear layers and on the token embedding",
        "train without it (exclude_modules of PEFT's LoraConfig), or merge the adapter with PEFT "
        "and use the merged model");
  }

  /// Whether a tensor of A or B belongs to a layer of such a kind.
  static bool is_unsupported(const Key& key, const std::string& canonical,
                             const io::TensorInfo& info) {
    if (key.embeds) return canonical != kEmbedding;
    return (key.tensor == "lora_A" || key.tensor == "lora_B") && info.shape.size() > 2;
  }

  void place(const std::string& name, const io::TensorInfo& info) {
    if (info.dtype != io::DType::kF32 && info.dtype != io::DType::kF16 &&
        info.dtype != io::DType::kBF16) {
      mistyped_.items.push_back(name + ": found " + io::dtype_name(info.dtype) +
                                ", expected F32, F16 or BF16");
    }
    if (!name.starts_with(kPeftPrefix)) return unknown_.items.push_back(name);
    const std::string inner = name.substr(std::string(kPeftPrefix).size());
    Key key = split_key(inner);
    std::string canonical = canonical_name(family_, key.module);
    if (!key.tensor.empty())
      canonical =
          wrapped_experts(family_.names, canonical, has_inner(key.module), config_.rule.parameters);
    if (key.kind.empty() && family_.names.is_experts(canonical)) canonical += ".weight";
    if (is_second_name(inner)) return;
    if (!canonical.empty() && is_unsupported(key, canonical, info)) {
      unsupported_.insert(key.module);
      return;
    }
    if (key.embeds != (!key.tensor.empty() && canonical == kEmbedding))
      return unknown_.items.push_back(name);
    if (key.embeds && !lora::further_tensors(variant_).empty())
      return unknown_.items.push_back(name + " (" + variant_.peft_flag +
                                      " on an embedding is not supported)");
    if (!key.tensor.empty() && !declares(variant_, key.tensor))
      return unknown_.items.push_back(name + " (" + flag_of(key.tensor) + " is false)");
    const bool ties = dir_.ensures_tie && canonical == kHead + ".weight";
    // No module that modules_to_save could name contains it; PEFT reads it directly.
    const bool in_no_module = canonical.find('.') == std::string::npos;
    const bool saved = key.kind.empty() && !is_lora_part(inner) &&
                       (ties || in_no_module || saves(dir_.modules_to_save, inner));
    if (key.kind.empty() && !saved && is_table(canonical)) {  // save_embedding_layers
      key.kind = kBaseCopy;
      canonical = canonical.substr(0, canonical.rfind('.'));
    }
    if (canonical.empty() || (key.kind.empty() && !saved)) return unknown_.items.push_back(name);
    const std::string full = key.kind.empty() ? canonical : canonical + "." + key.kind;
    if (!dir_.stored_names.emplace(full, name).second)
      twice_.items.push_back(name + " and " + dir_.stored_names.at(full));
    if (key.kind.empty()) dir_.full_tensors.push_back(canonical);
    if (!key.tensor.empty()) modules_[key.tensor].insert(canonical);
    if (key.tensor.empty()) return;
    const std::string spelled =
        family_.names.is_experts(canonical) ? family_.names.peft_name(canonical) : key.module;
    if (adapted_.emplace(spelled, canonical).second) take_own(spelled, canonical);
    check_rank(key, canonical, name, info);
  }

  /// Whether the file has tensors of a wrapper of experts inside this one.
  bool has_inner(const std::string& wrapper) const {
    const std::string inner = kPeftPrefix + wrapper + ".base_layer.lora_";
    const auto next = file_.tensors().lower_bound(inner);
    return next != file_.tensors().end() && next->first.starts_with(inner);
  }

  /// The rank and alpha of the module, if a pattern changes them. Patterns use the names in the
  /// file.
  void take_own(const std::string& module, const std::string& canonical) {
    if (config_.rank_pattern.empty() && config_.alpha_pattern.empty()) return;
    const std::vector<std::string> names = spellings(module, canonical);
    const std::optional<size_t> rank = ranks_.first_of(names), alpha = alphas_.first_of(names);
    const lora::LoraOptions::Own own{
        .rank = rank ? config_.rank_pattern[*rank].second : dir_.lora.rank,
        .alpha = alpha ? config_.alpha_pattern[*alpha].second : dir_.lora.alpha};
    if (own != lora::LoraOptions::Own{dir_.lora.rank, dir_.lora.alpha})
      dir_.lora.own[canonical] = own;
  }

  /// A second copy of a fully saved table, which save_embedding_layers adds and PEFT
  /// ignores.
  bool is_second_name(const std::string& inner) const {
    constexpr std::string_view kSecond = ".modules_to_save.weight";
    return inner.ends_with(kSecond) &&
           is_table(canonical_name(family_, inner.substr(0, inner.size() - kSecond.size())) +
                    ".weight");
  }

  void check_rank(const Key& key, const std::string& canonical, const std::string& name,
                  const io::TensorInfo& info) {
    const bool down = key.kind == "lora_A.weight", up = key.kind == "lora_B.weight";
    if (!down && !up) return;
    const int64_t rank = dir_.lora.of(canonical).rank,
                  found = info.shape.size() == 2 ? info.shape[up != key.embeds ? 1 : 0] : 0;
    if (found == rank) return;
    // The number of experts is known to the model; adapter_load.cpp checks it.
    if (family_.names.is_experts(canonical) && found > 0 && found % rank == 0) return;
    rank_.items.push_back(name + ": found " + shape_text(info.shape));
  }

  void pair_up() {
    require("lora_A", "lora_B", "lora_A");
    require("lora_B", "lora_A", "lora_B");
    for (const lora::AdapterTensor& tensor : lora::further_tensors(variant_)) {
      require("lora_A", tensor.name, variant_.peft_flag);
      require(tensor.name, "lora_A", tensor.name);
    }
    dir_.lora_modules.assign(modules_["lora_A"].begin(), modules_["lora_A"].end());
  }

  /// Every module with one of the tensors has the other.
  void require(const std::string& given, const std::string& other, const std::string& because) {
    for (const std::string& module : modules_[given]) {
      if (!modules_[other].contains(module))
        alone_.items.push_back(module + ": " + because + " without " + other);
    }
  }

  /// The tensors determine the computation; if target_modules is a list, tensors of layers that it
  /// does not name are reported. missing_layers.cpp reports named layers without tensors.
  void compare_targets() const {
    constexpr size_t kNamed = 5;
    const PeftTargetRule& rule = config_.rule;
    if (!rule.targets.expression.empty() || (rule.targets.empty() && rule.parameters.empty()))
      return;
    const std::optional<PeftTargets> targets = PeftTargets::of(rule, where_);
    if (!targets) return;
    std::vector<std::string> extra;
    for (const auto& [module, canonical] : adapted_) {
      if (dir_.ensures_tie && canonical == kHead) continue;  // PEFT lists the embedding only
      const bool experts = family_.names.is_experts(canonical);
      std::vector<std::string> names = spellings(module, canonical);
      names.insert(names.end(), {canonical, family_.names.stored_name(canonical)});
      const bool named = std::ranges::any_of(names, [&](const std::string& name) {
        return experts ? names_parameter(rule.parameters, name) : targets->takes(name);
      });
      if (!named) extra.push_back(module);
    }
    if (extra.empty()) return;
    warning("target_modules of " + dir_.path +
            "/adapter_config.json contradicts the tensors: tensors that it does not name, of " +
            join_names(extra, kNamed) +
            ". The tensors are used as they are; see that both files come from the same save");
  }

  /// The names of an adapted module: in the file, and in versions of transformers.
  std::vector<std::string> spellings(const std::string& module,
                                     const std::string& canonical) const {
    return {module, family_.names.peft_name(canonical), family_.names.whole_name(canonical)};
  }

  AdapterDir& dir_;
  const io::SafetensorsFile& file_;
  const PeftConfig& config_;
  const family::Family& family_;
  const std::string where_;
  const PeftPatterns ranks_, alphas_;
  std::map<std::string, std::string> adapted_;  // canonical names of modules by the file's
  const lora::Variant& variant_ = lora::find_variant(dir_.lora.variant);
  std::map<std::string, std::set<std::string>> modules_;  // by name of the adapter's tensor
  std::set<std::string> unsupported_;                     // modules by the file's name
  Faults unknown_{"unknown", {}}, twice_{"stored twice, in two spellings", {}},
      alone_{"without the tensors that belong to them", {}},
      rank_{"of another rank than adapter_config.json says", {}}, mistyped_{"of a wrong type", {}};
};

/// PEFT saves each adapter that is not named "default" in a folder of its name.
std::vector<std::string> adapters_inside(const std::string& path) {
  std::vector<std::string> folders;
  for (const std::string& name :
       io::is_directory(path) ? io::list_dir(path) : std::vector<std::string>()) {
    const std::string folder = path + "/" + name;
    if (io::path_exists(folder + "/adapter_config.json")) folders.push_back(folder);
  }
  return folders;
}

void refuse_other_formats(const std::string& path) {
  if (!io::is_directory(path) || !io::path_exists(path + "/adapter_config.json")) {
    const std::vector<std::string> inside = adapters_inside(path);
    refuse(ErrorKind::kInput, "not an adapter directory", path,
           io::is_directory(path)  ? "no adapter_config.json"
           : io::path_exists(path) ? "a file"
                                   : "nothing",
           "a folder with adapter_config.json and adapter_model.safetensors",
           inside.empty() ? "" : "name the folder of one adapter: " + join_names(inside, 5));
  }
  if (constexpr const char* kRest = "non_lora_trainables.bin";
      io::path_exists(path + "/" + kRest)) {
    refuse(ErrorKind::kInput, "half of this adapter is a pickle file, which lft does not load",
           path, std::string(kRest) + ", where the original LLaVA keeps the trained projector",
           "all trained tensors in " + std::string(kAdapterWeights),
           "put its mm_projector tensors into the base's multi_modal_projector (safetensors) "
           "and remove the file here; "
           "removed alone, the base's own projector is used");
  }
  if (io::path_exists(path + "/" + kAdapterWeights)) return;
  const bool pickle = io::path_exists(path + "/adapter_model.bin");
  refuse(ErrorKind::kInput,
         pickle ? "pickled adapters are not opened" : "the adapter has no weights", path,
         pickle ? "adapter_model.bin" : "no adapter_model.safetensors", kAdapterWeights,
         pickle ? "convert to safetensors: load with PEFT, then save_pretrained(NEW_DIR)" : kRetry);
}

/// Whether LM head and embedding are both fully saved with the same bytes.
bool has_one_table(const AdapterDir& dir, const io::SafetensorsFile& file) {
  constexpr uint64_t kPiece = 8u << 20;
  const auto& names = dir.stored_names;
  const auto head = names.find(kHead + ".weight"), embedding = names.find(kEmbedding + ".weight");
  if (head == names.end() || embedding == names.end()) return false;
  const io::TensorInfo &a = file.info(head->second), &b = file.info(embedding->second);
  if (a.dtype != b.dtype || a.shape != b.shape) return false;
  std::string piece_a(std::min(kPiece, a.bytes), '\0'), piece_b = piece_a;
  for (uint64_t done = 0; done < a.bytes; done += kPiece) {
    const uint64_t bytes = std::min(kPiece, a.bytes - done);
    file.read_range(a, done, bytes, piece_a.data());
    file.read_range(b, done, bytes, piece_b.data());
    if (piece_a != piece_b) return false;
  }
  return true;
}

}  // namespace

std::string AdapterDir::weights() const {
  return path + "/" + (parts ? kPartsWeights : kAdapterWeights);
}

AdapterDir AdapterDir::open(const std::string& path) {
  if (io::path_exists(path + "/" + kPartsWeights)) return open_parts(path);
  refuse_other_formats(path);
  const std::string config_file = path + "/adapter_config.json",
                    weights = path + "/" + kAdapterWeights;
  refuse_lfs_pointer(config_file);
  refuse_lfs_pointer(weights);
  const PeftConfig config = read_peft_config(config_file);
  AdapterDir dir;
  dir.path = io::absolute_path(path);
  dir.lora = config.lora;
  dir.modules_to_save = config.modules_to_save;
  dir.base_model_name_or_path = config.base_model_name_or_path;
  dir.inference_mode = config.inference_mode;
  dir.ensures_tie = config.ensures_tie;
  dir.named_by_pattern = !config.rule.targets.expression.empty();
  dir.notes = read_notes(path + "/" + kAdapterNotes);
  const io::SafetensorsFile file(weights);
  KeyReader(dir, file, config, config_file).read();
  dir.one_table = has_one_table(dir, file);
  return dir;
}

void check_adapter_base(const AdapterDir& dir, const ModelDir& base) {
  if (dir.notes.base_fingerprint.empty()) return;
  const std::string found = base_fingerprint(base);
  if (found == dir.notes.base_fingerprint) return;
  refuse(
      ErrorKind::kInput, "the adapter was trained on another base model",
      dir.path + "/" + kAdapterNotes, "fingerprint " + found.substr(0, 16) + " of " + base.path,
      "fingerprint " + dir.notes.base_fingerprint.substr(0, 16) + " (" + dir.notes.base_path + ")",
      "give the base model that the adapter records");
}

}  // namespace lft::hf
