#include "src/train/machine/determinism.h"

#include <ATen/Context.h>
#include <c10/util/env.h>

#include <cstdlib>
#include <string>

#include "src/base/log.h"

namespace lft::train {
namespace {

constexpr char kCublasVariable[] = "CUBLAS_WORKSPACE_CONFIG";
constexpr char kCublasDefault[] = ":4096:8";  // 24 MiB on the device

std::string cublas_workspace() {
  const char* value = std::getenv(kCublasVariable);
  return value == nullptr ? "" : value;
}

/// cuBLAS guarantees a fixed order of sums only with these two settings.
void fix_cublas_workspace() {
  const std::string value = cublas_workspace();
  if (value == kCublasDefault || value == ":16:8") return;
  if (!value.empty())
    notice(std::string(kCublasVariable) + "=" + value + " is not deterministic; it is " +
           kCublasDefault + " in this run");
  c10::utils::set_env(kCublasVariable, kCublasDefault);
}

}  // namespace

void make_deterministic(bool deterministic) {
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(deterministic, /*warn_only=*/false);
  context.setDeterministicFillUninitializedMemory(
      false);  // a debugging aid that fills every new tensor
  context.setDeterministicCuDNN(deterministic);
  context.setDeterministicMkldnn(deterministic);
  context.setBenchmarkCuDNN(false);
  if (deterministic) fix_cublas_workspace();
}

void seed_generators(uint64_t seed) { at::manual_seed(seed); }

io::Json determinism_json() {
  at::Context& context = at::globalContext();
  return {{"deterministic_algorithms", context.deterministicAlgorithms()},
          {"cudnn_deterministic", context.deterministicCuDNN()},
          {"cudnn_benchmark", context.benchmarkCuDNN()},
          {"onednn_deterministic", context.deterministicMkldnn()},
          {"cublas_workspace", cublas_workspace()},
          {"generator_seed", context.defaultGenerator(at::kCPU).current_seed()}};
}

}  // namespace lft::train
