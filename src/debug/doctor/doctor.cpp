#include "src/debug/doctor/doctor.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <gnu/libc-version.h>
#include <sys/utsname.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "src/base/proc.h"
#include "src/debug/doctor/doctor_gpu.h"
#include "src/debug/doctor/doctor_step.h"
#include "src/io/decode/image_decode.h"
#include "src/io/files.h"
#include "src/train/machine/device.h"
#include "src/train/machine/precision.h"

namespace lft::debug {
namespace {

io::Json or_null(const std::string& text) {
  return text.empty() ? io::Json(nullptr) : io::Json(text);
}

/// The smaller of the machine's memory and the container's limit.
double total_memory() {
  const double machine = line_bytes("/proc/meminfo", "MemTotal:");
  double limit = 0;
  std::ifstream("/sys/fs/cgroup/memory.max") >> limit;  // "max" keeps 0
  return limit > 0 ? std::min(machine, limit) : machine;
}

io::Json build_facts() {
  const std::string toolkit = LFT_CUDA_TOOLKIT;
  const io::Json environment = train::environment_json(at::kCPU, false);
  return {{"version", environment["lft"]},
          {"commit", environment["commit"]},
          {"compiler", environment["compiler"]},
          {"flags", environment["flags"]},
          {"cuda_toolkit", or_null(toolkit)},
          {"cuda_architectures", or_null(LFT_CUDA_ARCHITECTURES)},
          {"images", or_null(io::image_libraries())}};
}

io::Json libtorch_facts() {
  return {{"version", train::torch_version()},
          {"folder", train::libtorch_folder()},
          {"cpu_kernels", at::get_cpu_capability()},
          {"cuda_library", io::path_exists(train::libtorch_folder() + "/libtorch_cuda.so")}};
}

io::Json system_facts() {
  utsname kernel{};
  uname(&kernel);
  return {
      {"os", or_null(line_value("/etc/os-release", "PRETTY_NAME="))},
      {"kernel", std::string(kernel.sysname) + " " + kernel.release},
      {"libc", std::string("glibc ") + gnu_get_libc_version()},
      {"cpu", train::cpu_model()},
      {"cores", std::thread::hardware_concurrency()},
      {"threads", at::get_num_threads()},
      {"memory_bytes", total_memory()},
      {"memory_free_bytes", std::min(line_bytes("/proc/meminfo", "MemAvailable:"), total_memory())},
      {"disk_free_bytes",
       {{"here", io::free_bytes(".")},
        {"temporary", io::free_bytes(std::filesystem::temp_directory_path().string())}}}};
}

/// Environment variables that affect the results or speed of a run.
io::Json variables() {
  io::Json set = io::Json::object();
  for (const char* name :
       {"ATEN_CPU_CAPABILITY", "CUBLAS_WORKSPACE_CONFIG", "CUDA_LAUNCH_BLOCKING",
        "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "LD_PRELOAD", "MKL_NUM_THREADS",
        "NVIDIA_TF32_OVERRIDE", "OMP_NUM_THREADS", "PYTORCH_CUDA_ALLOC_CONF"}) {
    if (const char* value = std::getenv(name)) set[name] = value;
  }
  return set;
}

io::Json support_json(at::ScalarType type, const train::DeviceFacts& facts) {
  const train::DtypeSupport support = train::dtype_support(type, facts);
  return {{"speed", !support.has   ? "none"
                    : support.fast ? "fast"
                                   : "slow"},
          {"why", or_null(support.why)}};
}

io::Json device_json(const std::string& device, const std::string& name,
                     const train::DeviceFacts& facts) {
  return {{"device", device},
          {"name", name},
          {"bf16", support_json(at::kBFloat16, facts)},
          {"fp16", support_json(at::kHalf, facts)}};
}

io::Json device_list(const train::CudaDriver& driver) {
  io::Json list =
      io::Json::array({device_json("cpu", train::cpu_model(), train::device_facts(at::kCPU))});
  for (size_t i = 0; i < driver.devices.size(); ++i) {
    const train::DriverDevice& device = driver.devices[i];
    list.push_back(device_json("cuda:" + std::to_string(i), device.name,
                               {.gpu = true, .capability = device.capability, .bf16_unit = {}}));
    list.back()["capability"] = device.capability;
    list.back()["memory_bytes"] = device.memory;
  }
  return list;
}

io::Json driver_json(const train::CudaDriver& driver) {
  if (!driver.found) return nullptr;
  return {{"version", or_null(driver.version)},
          {"cuda", driver.cuda > 0 ? io::Json(train::cuda_text(driver.cuda)) : io::Json()},
          {"problem", or_null(driver.problem)}};
}

GpuAccess gpu_access(const train::CudaDriver& driver) {
  GpuAccess access{
      .driver = driver,
      .visible = {},
      .toolkit = LFT_CUDA_TOOLKIT,
      .architectures = LFT_CUDA_ARCHITECTURES,
      .has_cuda_library = io::path_exists(train::libtorch_folder() + "/libtorch_cuda.so"),
      .unused = train::unused_gpu_reason(),
      .used = !train::default_device().is_cpu()};
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) access.visible = visible;
  return access;
}

/// One step in one precision. A device may fail in any way; the report contains every error.
io::Json examine_step(at::Device device, at::ScalarType type, const DoctorOptions& options,
                      DoctorReport& report) {
  const std::string name = device.str() + " in " + train::compute_name(type);
  io::Json result = {{"device", device.str()},
                     {"precision", train::compute_name(type)},
                     {"result", "passed"},
                     {"failures", io::Json::array()}};
  const train::DtypeSupport support = train::dtype_support(type, train::device_facts(device));
  if (!support.has) {
    result["result"] = "left out: " + support.why;
    return result;
  }
  try {
    const StepCheck check = check_step(device, type, options.gradients_ready);
    result["loss"] = check.loss;
    result["failures"] = check.failures;
    if (check.failures.empty()) return result;
    report.problems.push_back(
        {ErrorKind::kInternal,
         "a training step on " + name + " computes wrong numbers: " + check.failures.front()});
  } catch (const std::exception& error) {
    const auto* torch = dynamic_cast<const c10::Error*>(&error);
    const std::string text = torch != nullptr ? torch->what_without_backtrace() : error.what();
    result["failures"] = {text};
    report.problems.push_back(
        {ErrorKind::kResource, "a training step on " + name + " fails: " + text});
  }
  result["result"] = "failed";
  return result;
}

io::Json examine_steps(const DoctorOptions& options, DoctorReport& report) {
  io::Json list = io::Json::array();
  std::vector<at::Device> devices = {at::kCPU};
  if (!train::default_device().is_cpu()) devices.insert(devices.begin(), train::default_device());
  for (const at::Device device : devices) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf})
      list.push_back(examine_step(device, type, options, report));
  }
  return list;
}

}  // namespace

DoctorReport examine(const DoctorOptions& options) {
  DoctorReport report;
  const train::CudaDriver driver = train::probe_driver(options.driver_library);
  report.facts = {{"lft", build_facts()},
                  {"libtorch", libtorch_facts()},
                  {"system", system_facts()},
                  {"variables", variables()},
                  {"driver", driver_json(driver)},
                  {"devices", device_list(driver)},
                  {"device_used", train::default_device().str()}};
  const GpuAccess access = gpu_access(driver);
  const std::string hindrance = gpu_hindrance(access);
  report.facts["gpu"] = or_null(hindrance);
  // A machine without a driver or a device is healthy and uses the CPU.
  if (!hindrance.empty() && driver.found && (!driver.problem.empty() || !driver.devices.empty()))
    report.problems.push_back({ErrorKind::kResource, hindrance});
  report.facts["steps"] = examine_steps(options, report);
  report.facts["problems"] = io::Json::array();
  for (const DoctorProblem& problem : report.problems)
    report.facts["problems"].push_back(problem.what);
  return report;
}

}  // namespace lft::debug
