#include "src/hf/model_dir.h"

#include <algorithm>

#include "kernels/common/error.h"
#include "models/registry/registry.h"
#include "src/base/errors.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/hf/known_models.h"
#include "src/hf/model_folder.h"
#include "src/hf/shards.h"
#include "src/hf/tied_head.h"
#include "src/hf/weights.h"
#include "src/io/files.h"
#include "src/io/json.h"

namespace lft::hf {
namespace {

io::Json read_config(const std::string& path) {
  require_model_folder(path);
  const std::string file = path + "/config.json";
  refuse_lfs_pointer(file);
  io::Json config = io::read_json_file(file);
  refuse_quantised(config, file);
  return config;
}

/// The dtype in config.json; F32 if it has none.
io::DType named_dtype(const family::ModelConfig& config) {
  return config.stored_dtype == "bfloat16"  ? io::DType::kBF16
         : config.stored_dtype == "float16" ? io::DType::kF16
                                            : io::DType::kF32;
}

/// Null if there is no file or it is not JSON: transformers uses config.json's numbers
/// then.
io::Json read_generation_config(const std::string& file) {
  if (!io::path_exists(file)) return {};
  try {
    return io::read_json_file(file);
  } catch (const Error&) {
    return {};
  }
}

/// If generation_config.json has end tokens, transformers uses no others.
void read_end_tokens(const std::string& file, family::ModelConfig* config) {
  const io::Json generation = read_generation_config(file);
  const io::Json ends =
      generation.is_object() ? generation.value("eos_token_id", io::Json()) : io::Json();
  if (ends.is_null()) return;
  config->eos_tokens.clear();
  for (const io::Json& end : ends.is_array() ? ends : io::Json::array({ends})) {
    if (end.is_number_unsigned()) {
      config->eos_tokens.push_back(end.get<int64_t>());
    } else if (end != io::Json(-1)) {  // some files use -1 for "none"
      refuse(ErrorKind::kInput, "eos_token_id is no token", file + ": eos_token_id",
             quote_text(end.dump(), 80), "an id or a list of ids",
             "take the file that belongs to the model");
    }
  }
}

/// Matches stored tensors with those that the config requires.
struct Matcher {
  Faults missing{"missing", {}}, unknown{"unknown", {}}, misshapen{"of a wrong shape", {}},
      mistyped{"of a wrong type", {}}, twice{"stored twice", {}};
  std::map<io::DType, uint64_t> bytes_of;

  /// If two shards contain the same name, the last one is read, as in transformers.
  void place_all(ModelDir& dir) {
    std::map<std::string, size_t> file_of;
    for (size_t i = 0; i < dir.files.size(); ++i)
      for (const auto& [name, info] : dir.files[i].tensors()) file_of[name] = i;
    for (const auto& [name, file] : file_of) place(dir, {file, name});
  }

  void place(ModelDir& dir, const ModelDir::Place& at) {
    const std::string& name = at.stored_name;
    const std::string canonical = dir.config.family->names.canonical_name(name, dir.config);
    bool fresh = true;
    if (!canonical.empty()) {
      fresh = dir.tensors.try_emplace(canonical, at).second;
    } else if (name.ends_with("lm_head.weight") && dir.config.text.tie_embeddings) {
      fresh = !dir.tied_head;
      dir.tied_head = at;
    }
    if (!fresh) twice.items.push_back(name);
  }

  /// The names of the parts of a weight of experts that is stored in parts.
  static std::vector<std::string> pieces_of(const family::TensorSpec& spec) {
    const bool gated = spec.name.ends_with("gate_up_proj.weight");
    const std::string of_experts = spec.name.substr(0, spec.name.rfind("experts.") + 8);
    std::vector<std::string> names;
    for (int64_t expert = 0; expert < spec.experts; ++expert) {
      for (const char* layer :
           gated ? std::vector{"gate_proj", "up_proj"} : std::vector{"down_proj"})
        names.push_back(of_experts + std::to_string(expert) + "." + layer + ".weight");
    }
    return names;
  }
  static bool has_pieces(const family::TensorSpec& spec,
                         const std::map<std::string, ModelDir::Place>& left) {
    return std::ranges::any_of(pieces_of(spec),
                               [&](const std::string& name) { return left.contains(name); });
  }

  /// Checks these parts, and removes them from `left`.
  void take_pieces(ModelDir& dir, const family::TensorSpec& spec,
                   std::map<std::string, ModelDir::Place>& left) {
    const std::vector<std::string> names = dir.expert_pieces[spec.name] = pieces_of(spec);
    const int64_t rows = spec.shape[0] / std::ssize(names);
    for (const std::string& name : names) {
      const auto at = left.find(name);
      if (at == left.end()) {
        missing.items.push_back(name + " " + shape_text({rows, spec.shape[1]}));
        continue;
      }
      check(dir.info(at->second), {rows, spec.shape[1]});
      left.erase(at);
    }
  }

  void compare(ModelDir& dir) {
    std::map<std::string, ModelDir::Place> left = dir.tensors;
    for (const family::TensorSpec& spec : dir.config.family->layout(dir.config).tensors) {
      const auto at = left.find(spec.name);
      if (at == left.end() && dir.config.family->names.experts_apart && has_pieces(spec, left)) {
        take_pieces(dir, spec, left);
        continue;
      }
      if (at == left.end()) {
        missing.items.push_back(spec.name + " " + shape_text(spec.stored_shape(false)));
        continue;
      }
      check(dir.info(at->second), spec.stored_shape(/*transposed=*/false),
            dir.config.family->names.experts_transposed ? spec.stored_shape(true)
                                                        : std::vector<int64_t>());
      left.erase(at);
    }
    for (const auto& [name, where] : left) {
      unknown.items.push_back(where.stored_name + " " + shape_text(dir.info(where).shape));
      dir.tensors.erase(name);
    }
    if (dir.tied_head)
      check(dir.info(*dir.tied_head), {dir.config.text.vocab, dir.config.text.hidden});
  }

  void check(const io::TensorInfo& info, const std::vector<int64_t>& shape,
             const std::vector<int64_t>& or_shape = {}) {
    if (info.shape != shape && (or_shape.empty() || info.shape != or_shape))
      misshapen.items.push_back(info.name + ": found " + shape_text(info.shape) + ", expected " +
                                shape_text(shape));
    if (!is_weight_dtype(info.dtype))
      mistyped.items.push_back(info.name + ": found " + io::dtype_name(info.dtype) +
                               ", expected F32, F16 or BF16");
    bytes_of[info.dtype] += info.bytes;
  }
};

}  // namespace

ModelDir ModelDir::config_only(const std::string& path) {
  ModelDir dir;
  dir.path = io::absolute_path(path);
  const io::Json config = read_config(path);
  dir.config = registry::parse_config(config, path + "/config.json");
  read_end_tokens(path + "/generation_config.json", &dir.config);
  dir.stored_dtype = named_dtype(dir.config);
  return dir;
}

ModelDir ModelDir::shapes_of(const std::string& path) {
  const io::Json known = io::path_exists(path) ? io::Json() : known_config(path);
  if (known.is_null() && !io::path_exists(path)) {
    try {
      return config_only(path);
    } catch (const Error& error) {  // no folder is needed for a known name
      ErrorInfo info = error.info();
      info.expected += ", or one of " + join(known_models());
      throw Error(error.kind(), info);
    }
  }
  if (known.is_null()) return config_only(path);
  ModelDir dir;
  dir.path = path;
  dir.config = registry::parse_config(known, path);
  dir.stored_dtype = named_dtype(dir.config);
  return dir;
}

ModelDir ModelDir::open(const std::string& path) {
  ModelDir dir = config_only(path);
  for (WeightFile& weights : open_weight_files(path)) {
    dir.file_names.push_back(weights.name);
    dir.files.push_back(std::move(weights.file));
  }
  Matcher matcher;
  matcher.place_all(dir);
  settle_tied_head(dir);
  matcher.compare(dir);
  if (any({matcher.missing, matcher.misshapen, matcher.mistyped, matcher.twice})) {
    refuse(ErrorKind::kInput, "the weights do not fit config.json", path,
           describe({matcher.missing, matcher.unknown, matcher.misshapen, matcher.mistyped,
                     matcher.twice}),
           "the " + std::to_string(dir.config.family->layout(dir.config).tensors.size()) +
               " tensors of a " + dir.config.family->name + " of this config",
           "take config.json and weights from the same checkpoint (a field that config.json leaves "
           "out has the value that transformers gives it)");
  }
  if (const std::vector<std::string>& names = matcher.unknown.items; !names.empty())
    warning_once(
        "the checkpoint has tensors that the model has no place for; as in transformers "
        "they are not read: " +
        join(names, ", ", 5));
  uint64_t most = 0;
  for (const auto& [dtype, bytes] : matcher.bytes_of) {
    if (bytes > most) dir.stored_dtype = dtype;
    most = std::max(most, bytes);
  }
  return dir;
}

}  // namespace lft::hf
