// An adapter rewritten for a program that serves it: what the program ignores or refuses is baked,
// merged or renamed, and what was written is read back and compared.
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
  Dialect dialect = Dialect::kEvery;              // of the adapter's keys; not of GGUF
  std::optional<io::DType> dtype = std::nullopt;  // of GGUF's matrices: GgufJob
};

/// kPeft: `out` is an adapter. kVllm, kSglang: `out`/adapter, and `out`/base where something is
/// merged into the base: what was trained whole, and LoRA that the server does not read. kGguf:
/// model.gguf, mmproj.gguf and, where LoRA stays, lora.gguf. Atomic. Returns lines that say what
/// was written and how it is served. kInput for what no export makes readable, naming it; kUsage
/// for an output that touches an input; kInternal where what was written reads back otherwise.
std::vector<std::string> export_adapter(const ExportRequest& request,
                                        const std::function<void()>& poll = nullptr);

}  // namespace lft::hf
