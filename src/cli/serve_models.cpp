#include "src/cli/serve_models.h"

#include <algorithm>
#include <filesystem>

#include "kernels/common/error.h"
#include "models/family/model.h"
#include "src/base/errors.h"
#include "src/base/log.h"
#include "src/hf/adapter/adapter.h"
#include "src/hf/adapter/adapter_tie.h"
#include "src/hf/weights_load.h"
#include "src/io/files.h"
#include "src/io/run_folder.h"
#include "src/train/machine/cpu_allocator.h"

namespace lft::cli {
namespace {

/// A value of --adapter is NAME=DIR unless it is a directory or "=" is within a path.
bool has_name(const std::string& given) {
  const size_t equals = given.find('=');
  return equals != std::string::npos && given.find('/') > equals && !io::is_directory(given);
}

void add_variant(ServedModels& out, const std::string& name, data::EncodeOptions encode) {
  encode.special_tokens = data::SpecialTokensInText::kText;  // text in a request is plain text
  out.encodes.push_back(std::make_unique<data::EncodeOptions>(std::move(encode)));
  out.variants.push_back({name, out.encodes.back().get()});
}

/// Makes LM head and embedding of a base that ties them two tensors if an adapter changes one of
/// them, which also serves adapters that change neither.
void untie_for_all(const std::vector<hf::AdapterDir>& dirs, hf::ModelDir& base) {
  const hf::AdapterDir* separate = nullptr;
  const hf::AdapterDir* tied = nullptr;
  for (const hf::AdapterDir& dir : dirs) {
    if (hf::unties(dir, base.config))
      separate = &dir;
    else if (dir.one_table || dir.parts)
      tied = &dir;
  }
  if (separate == nullptr) return;
  if (tied != nullptr && base.config.text.tie_embeddings) {
    refuse(ErrorKind::kInput, "two adapters need different models", tied->path,
           "one tensor as LM head and embedding; " + separate->path + " changes one of them",
           "adapters that agree in it", "serve them one after the other, or on two ports");
  }
  hf::untie(*separate, base);
}

}  // namespace

bool is_single(const std::vector<std::string>& given) {
  return given.size() == 1 && !has_name(given.front());
}

std::string name_of_path(const std::string& path) {
  const std::filesystem::path whole = std::filesystem::absolute(path).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

std::vector<NamedAdapter> named_adapters(const std::vector<std::string>& given,
                                         const std::string& base) {
  std::vector<NamedAdapter> adapters;
  std::vector<std::string> names = {base};
  for (const std::string& value : given) {
    const size_t equals = has_name(value) ? value.find('=') : std::string::npos;
    const std::string path =
        io::adapter_folder(equals == std::string::npos ? value : value.substr(equals + 1));
    const std::string name =
        equals == std::string::npos ? name_of_path(value) : value.substr(0, equals);
    if (name.empty() || path.empty())
      refuse(ErrorKind::kUsage, "an adapter without a name or a directory", "--adapter",
             quote_text(value), "NAME=DIR");
    if (std::ranges::find(names, name) != names.end())
      refuse(ErrorKind::kUsage, "two models have one name", "--adapter " + value, quote_text(name),
             "another name for each adapter, and for the base",
             "write --adapter NAME=DIR; --name NAME is the base's");
    names.push_back(name);
    adapters.push_back({name, path});
  }
  return adapters;
}

ServedModels load_one(const InferOptions& options, const std::string& name) {
  ServedModels out;
  out.infer = load_infer_model(options);
  add_variant(out, name, out.infer.encode);
  return out;
}

ServedModels load_several(const InferOptions& options, const std::string& name,
                          const std::vector<NamedAdapter>& adapters) {
  ServedModels out;
  hf::ModelDir base = open_infer_base(options, out.infer);
  std::vector<hf::AdapterDir> dirs;
  for (const NamedAdapter& adapter : adapters)
    dirs.push_back(open_infer_adapter(adapter.path, base));
  out.infer.tokenizer = text::Tokenizer::load(options.model);
  untie_for_all(dirs, base);
  notice(name + ": model: " + options.model + ", adapter: none");
  add_variant(out, name, infer_encode(options, base, {}, *out.infer.tokenizer));
  out.infer.model = hf::load_model(base, out.infer.dtype, out.infer.device);
  out.infer.model->eval();
  out.adapters = std::make_unique<hf::AdapterSet>(out.infer.model);
  for (size_t i = 0; i < adapters.size(); ++i) {
    notice(adapters[i].name + ": adapter: " + adapters[i].path);
    add_variant(out, adapters[i].name, infer_encode(options, base, dirs[i], *out.infer.tokenizer));
    out.adapters->add(dirs[i], out.infer.dtype);
  }
  if (out.infer.device.is_cpu()) train::keep_freed_memory();
  return out;
}

}  // namespace lft::cli
