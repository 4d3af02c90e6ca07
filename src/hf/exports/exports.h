// Rewrites an adapter for a program that serves it: unsupported parts are converted, merged or
// renamed, and the result is read back and compared.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "src/hf/adapter/adapter_write.h"
#include "src/hf/exports/clients.h"

namespace lft::hf {

struct ExportRequest {
  Target target = Target::kPeft;
  AdapterDir adapter;
  std::string model, out;
  Dialect dialect = Dialect::kEvery;              // dialect of the adapter's keys; for kPeft
  std::optional<io::DType> dtype = std::nullopt;  // dtype of GGUF's matrices: GgufJob
};

/// kPeft: `out` is an adapter. kVllm, kSglang: `out`/adapter, and `out`/base if fully fine-tuned
/// parts, or LoRA that the server does not read, are merged into the base. kGguf: model.gguf,
/// mmproj.gguf and, if LoRA remains, lora.gguf. Atomic. Returns lines that describe the files and
/// how to serve them. Throws kInput naming parts that cannot be exported, kUsage for an output that
/// overlaps an input, kInternal if the files do not read back equal.
std::vector<std::string> export_adapter(const ExportRequest& request,
                                        const std::function<void()>& poll = nullptr);

}  // namespace lft::hf
