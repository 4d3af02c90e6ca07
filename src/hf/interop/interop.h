// Names of the model families in other programs, and which programs load a model: one table by
// model_type of config.json.
#pragma once
#include <string>

#include "models/family/config.h"
#include "models/family/input_settings.h"
#include "src/hf/interop/gguf_form.h"

namespace lft::hf {

/// Serving programs that load some families only.
enum class Server { kSglang, kLlamaCpp };

/// The class of transformers that loads the model; empty if only the checkpoint's own code does.
std::string transformers_class(const family::ModelConfig& config);
/// The oldest transformers version with the module names of PEFT's adapters.
std::string oldest_transformers(const family::ModelConfig& config);
/// Packages in PyPI that transformers' processor of the family imports beyond torchvision and
/// Pillow, each after a space.
std::string more_packages(const family::ModelConfig& config);
/// The settings' bounds of pixels as further arguments of the processor's from_pretrained(), each
/// after a comma; empty if there are none.
std::string processor_arguments(const family::ModelConfig& config,
                                const family::InputSettings& input);
/// Why the server does not load the model, as a sentence; empty if it does.
std::string why_not_served(Server server, const family::ModelConfig& config);
/// The model as GGUF files. kInternal for a model that why_not_served() refuses.
GgufForm gguf_form(const family::ModelConfig& config);

}  // namespace lft::hf
