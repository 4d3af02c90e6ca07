#include "src/hf/model_dir.h"

#include "kernels/common/error.h"
#include "models/registry/registry.h"
#include "src/base/errors.h"
#include "src/base/text.h"
#include "src/hf/known_models.h"
#include "src/hf/shards.h"
#include "src/hf/weights.h"
#include "src/io/files.h"
#include "src/io/json.h"

namespace lft::hf {
namespace {

/// Unquantised weights only: what is stored otherwise needs scales that no family reads.
bool is_weight_dtype(io::DType dtype) {
  return dtype == io::DType::kF32 || dtype == io::DType::kF16 || dtype == io::DType::kBF16;
}

io::Json read_config(const std::string& path) {
  if (!io::is_directory(path)) {
    refuse(ErrorKind::kInput, "the model directory does not exist", path,
           io::path_exists(path) ? "a file" : "nothing",
           "a folder with config.json and *.safetensors", "check model.path or --model");
  }
  const std::string file = path + "/config.json";
  if (!io::path_exists(file) && io::path_exists(path + "/adapter/adapter_config.json")) {
    refuse(ErrorKind::kInput, "a run's folder with an adapter and no model", path, {},
           "a folder with config.json and *.safetensors",
           "give the run's base as the model, and " + path + " as the adapter");
  }
  refuse_lfs_pointer(file);
  io::Json config = io::read_json_file(file);
  if (config.is_object() && config.contains("quantization_config") &&
      !config["quantization_config"].is_null()) {
    refuse(ErrorKind::kInput, "the checkpoint is quantised", file + ": quantization_config", {},
           "weights in F32, F16 or BF16", "use the checkpoint that it was quantised from");
  }
  return config;
}

/// What config.json says of the weights: "dtype", or "torch_dtype" as it was called; F32 where it
/// says nothing.
io::DType named_dtype(const io::Json& config) {
  for (const char* key : {"dtype", "torch_dtype"}) {
    const std::string name =
        config.contains(key) && config[key].is_string() ? config[key].get<std::string>() : "";
    if (name == "bfloat16") return io::DType::kBF16;
    if (name == "float16") return io::DType::kF16;
  }
  return io::DType::kF32;
}

/// Null where there is none, and where it is no JSON: transformers takes config.json's numbers
/// then.
io::Json read_generation_config(const std::string& file) {
  if (!io::path_exists(file)) return {};
  try {
    return io::read_json_file(file);
  } catch (const Error&) {
    return {};
  }
}

/// Where generation_config.json names end tokens transformers looks at no other.
void read_end_tokens(const std::string& file, family::ModelConfig* config) {
  const io::Json generation = read_generation_config(file);
  const io::Json ends =
      generation.is_object() ? generation.value("eos_token_id", io::Json()) : io::Json();
  if (ends.is_null()) return;
  config->eos_tokens.clear();
  for (const io::Json& end : ends.is_array() ? ends : io::Json::array({ends})) {
    if (end.is_number_unsigned()) {
      config->eos_tokens.push_back(end.get<int64_t>());
    } else if (end != io::Json(-1)) {  // how some files say "none"
      refuse(ErrorKind::kInput, "eos_token_id is no token", file + ": eos_token_id",
             quote_text(end.dump(), 80), "an id or a list of ids",
             "take the file that belongs to the model");
    }
  }
}

/// Matches stored tensors with what the config asks for.
struct Matcher {
  Faults missing{"missing", {}}, unknown{"unknown", {}}, misshapen{"of a wrong shape", {}},
      mistyped{"of a wrong type", {}}, twice{"stored twice", {}};
  std::map<io::DType, uint64_t> bytes_of;

  void place(ModelDir& dir, size_t file, const io::TensorInfo& info) {
    const std::string canonical = dir.config.family->canonical_name(info.name, dir.config);
    const bool head = info.name.ends_with("lm_head.weight") && dir.config.text.tie_embeddings;
    if (canonical.empty() && head) dir.tied_heads.push_back({file, info.name});
    if (canonical.empty()) return;
    if (!dir.tensors.try_emplace(canonical, ModelDir::Place{file, info.name}).second)
      twice.items.push_back(info.name);
  }

  void compare(ModelDir& dir) {
    std::map<std::string, ModelDir::Place> left = dir.tensors;
    for (const family::TensorSpec& spec : dir.config.family->tensors(dir.config)) {
      const auto at = left.find(spec.name);
      if (at == left.end()) {
        missing.items.push_back(spec.name + " " + shape_text(spec.shape));
        continue;
      }
      check(dir.info(at->second), spec.shape);
      left.erase(at);
    }
    for (const auto& [name, where] : left) {
      unknown.items.push_back(where.stored_name + " " + shape_text(dir.info(where).shape));
      dir.tensors.erase(name);
    }
    for (const ModelDir::Place& head : dir.tied_heads)
      check(dir.info(head), {dir.config.text.vocab, dir.config.text.hidden});
  }

  void check(const io::TensorInfo& info, const std::vector<int64_t>& shape) {
    if (info.shape != shape)
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
  dir.stored_dtype = named_dtype(config);
  return dir;
}

ModelDir ModelDir::shapes_of(const std::string& path) {
  const io::Json known = io::path_exists(path) ? io::Json() : known_config(path);
  if (known.is_null() && !io::path_exists(path)) {
    refuse(ErrorKind::kInput, "the model directory does not exist", path, "nothing",
           "a folder with config.json, or one of " + join(known_models()),
           "check model.path, or name one of these for its shapes");
  }
  if (known.is_null()) return config_only(path);
  ModelDir dir;
  dir.path = path;
  dir.config = registry::parse_config(known, path);
  dir.stored_dtype = named_dtype(known);
  return dir;
}

ModelDir ModelDir::open(const std::string& path) {
  ModelDir dir = config_only(path);
  dir.files = open_weight_files(path);
  Matcher matcher;
  for (size_t i = 0; i < dir.files.size(); ++i) {
    for (const auto& [name, info] : dir.files[i].tensors()) matcher.place(dir, i, info);
  }
  matcher.compare(dir);
  const std::vector<Faults> faults = {matcher.missing, matcher.unknown, matcher.misshapen,
                                      matcher.mistyped, matcher.twice};
  if (any(faults)) {
    refuse(ErrorKind::kInput, "the weights do not fit config.json", path, describe(faults),
           "the " + std::to_string(dir.config.family->tensors(dir.config).size()) +
               " tensors of a " + dir.config.family->name() + " of this config",
           "take config.json and weights from the same checkpoint (a field that config.json leaves "
           "out has the value that transformers gives it)");
  }
  uint64_t most = 0;
  for (const auto& [dtype, bytes] : matcher.bytes_of) {
    if (bytes > most) dir.stored_dtype = dtype;
    most = std::max(most, bytes);
  }
  return dir;
}

}  // namespace lft::hf
