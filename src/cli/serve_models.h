// The models that lft serve answers with: one, or a base and its adapters.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "src/cli/infer.h"
#include "src/hf/adapter/adapter_set.h"
#include "src/serve/engine.h"

namespace lft::cli {

struct NamedAdapter {
  std::string name, path;
};
/// The values of --adapter: [NAME=]DIR. Without NAME= the name is that of the directory. kUsage for
/// an invalid name and for two of the same name, also `base`.
std::vector<NamedAdapter> named_adapters(const std::vector<std::string>& given,
                                         const std::string& base);
/// Whether the values name one adapter, which is served without its base.
bool is_single(const std::vector<std::string>& given);

/// The last part of a path.
std::string name_of_path(const std::string& path);

struct ServedModels {
  InferModel infer;
  std::vector<std::unique_ptr<data::EncodeOptions>> encodes;  // of each variant
  std::unique_ptr<hf::AdapterSet> adapters;                   // null: there is one variant
  std::vector<serve::Variant> variants;
};
/// The model of the options, with its adapter if they have one, under `name`.
ServedModels load_one(const InferOptions& options, const std::string& name);
/// The base of the options under `name`, and the adapters. kInput if two adapters need different
/// bases.
ServedModels load_several(const InferOptions& options, const std::string& name,
                          const std::vector<NamedAdapter>& adapters);

}  // namespace lft::cli
