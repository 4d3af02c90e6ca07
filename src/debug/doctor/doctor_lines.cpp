// What `lft doctor` prints.
#include "src/base/errors.h"
#include "src/debug/doctor/doctor.h"

namespace lft::debug {
namespace {

std::string doctor_line(const std::string& label, const std::string& text) {
  std::string start = label;
  start.resize(12, ' ');
  return start + text;
}

std::string text_or(const io::Json& value, const std::string& otherwise) {
  return value.is_string() ? value.get<std::string>() : otherwise;
}

std::string bytes(const io::Json& value) { return format_bytes(value.get<double>()); }

std::string support_text(const io::Json& device, const std::string& dtype) {
  const io::Json& support = device[dtype];
  const std::string why = text_or(support["why"], "");
  return dtype + " " + support["speed"].get<std::string>() + (why.empty() ? "" : " (" + why + ")");
}

std::string device_text(const io::Json& device, bool used) {
  std::string text = device["device"].get<std::string>() + " " + device["name"].get<std::string>();
  if (device.contains("capability")) {
    const int capability = device["capability"];
    text += ", compute capability " + std::to_string(capability / 10) + "." +
            std::to_string(capability % 10) + ", " + bytes(device["memory_bytes"]);
  }
  return text + ": " + support_text(device, "bf16") + ", " + support_text(device, "fp16") +
         (used ? "; lft computes here" : "");
}

std::string driver_text(const io::Json& driver) {
  if (driver.is_null()) return "no NVIDIA driver";
  return "NVIDIA " + text_or(driver["version"], "of unknown version") + ", runs CUDA up to " +
         text_or(driver["cuda"], "?") +
         (driver["problem"].is_string()
              ? "; does not start: " + driver["problem"].get<std::string>()
              : "");
}

std::string gpu_text(const io::Json& facts) {
  const bool used = facts["device_used"] != "cpu";
  if (facts["gpu"].is_null()) return "used, with kernels that were compiled for it";
  return (used ? "used, but " : "not used: ") + facts["gpu"].get<std::string>();
}

std::string variables_text(const io::Json& variables) {
  std::string text;
  for (const auto& [name, value] : variables.items())
    text += (text.empty() ? "" : ", ") + name + "=" + value.get<std::string>();
  return text.empty() ? "none that matter are set" : text;
}

std::string step_text(const io::Json& step) {
  std::string text = step["device"].get<std::string>() + " " +
                     step["precision"].get<std::string>() + ": " +
                     step["result"].get<std::string>();
  for (const io::Json& failure : step["failures"]) text += "; " + failure.get<std::string>();
  return text;
}

void add_build(const io::Json& facts, std::vector<std::string>& lines) {
  const io::Json &lft = facts["lft"], &torch = facts["libtorch"];
  lines.push_back(doctor_line("lft", lft["version"].get<std::string>() + ", commit " +
                                         lft["commit"].get<std::string>() + ", GCC " +
                                         lft["compiler"].get<std::string>() + ", flags " +
                                         lft["flags"].get<std::string>()));
  lines.push_back(doctor_line(
      "images", text_or(lft["images"], "built without decoders: trains from prepared data only")));
  lines.push_back(doctor_line(
      "LibTorch", torch["version"].get<std::string>() + " in " +
                      torch["folder"].get<std::string>() + ", CPU kernels " +
                      torch["cpu_kernels"].get<std::string>() +
                      (torch["cuda_library"].get<bool>() ? ", with its CUDA library"
                                                         : ", without a CUDA library")));
  lines.push_back(doctor_line("CUDA", lft["cuda_toolkit"].is_string()
                                          ? "kernels built with toolkit " +
                                                lft["cuda_toolkit"].get<std::string>() + " for " +
                                                text_or(lft["cuda_architectures"], "?")
                                          : "kernels not built (no nvcc, or LFT_CUDA=OFF)"));
  lines.push_back(doctor_line("driver", driver_text(facts["driver"])));
  lines.push_back(doctor_line("GPU", gpu_text(facts)));
}

void add_system(const io::Json& system, std::vector<std::string>& lines) {
  lines.push_back(doctor_line("system", text_or(system["os"], "unknown system") + ", " +
                                            system["kernel"].get<std::string>() + ", " +
                                            system["libc"].get<std::string>()));
  lines.push_back(doctor_line("processor", system["cpu"].get<std::string>() + ", " +
                                               system["cores"].dump() + " cores, " +
                                               system["threads"].dump() + " threads used"));
  lines.push_back(doctor_line(
      "memory", bytes(system["memory_free_bytes"]) + " free of " + bytes(system["memory_bytes"])));
  lines.push_back(doctor_line("disk", bytes(system["disk_free_bytes"]["here"]) + " free here, " +
                                          bytes(system["disk_free_bytes"]["temporary"]) +
                                          " free for temporary files"));
}

}  // namespace

std::vector<std::string> doctor_lines(const DoctorReport& report) {
  const io::Json& facts = report.facts;
  std::vector<std::string> lines;
  add_build(facts, lines);
  add_system(facts["system"], lines);
  lines.push_back(doctor_line("variables", variables_text(facts["variables"])));
  for (const io::Json& device : facts["devices"])
    lines.push_back(
        doctor_line("device", device_text(device, device["device"] == facts["device_used"])));
  for (const io::Json& step : facts["steps"]) lines.push_back(doctor_line("step", step_text(step)));
  for (const DoctorProblem& problem : report.problems)
    lines.push_back(doctor_line("problem", problem.what));
  if (report.problems.empty())
    lines.push_back(doctor_line("healthy", "optimizer, loss scaler and device work together"));
  lines.push_back(doctor_line("",
                              "(for a bug report: paste all lines above, and the command that "
                              "failed with all it printed)"));
  return lines;
}

}  // namespace lft::debug
