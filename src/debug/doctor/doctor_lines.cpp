#include "src/debug/doctor/doctor_lines.h"

#include "src/base/errors.h"
#include "src/debug/doctor/doctor.h"

namespace lft::debug {
namespace {

struct Lines {
  std::vector<std::string> all;

  void add(const std::string& label, const std::string& text) {
    all.push_back(label);
    all.back().resize(12, ' ');
    all.back() += text;
  }
};

std::string text_of(const io::Json& value, const std::string& otherwise = "") {
  return value.is_string() ? value.get<std::string>() : otherwise;
}

std::string bytes(const io::Json& value) { return format_bytes(value.get<double>()); }

std::string support_text(const io::Json& device, const std::string& dtype) {
  const io::Json& support = device[dtype];
  const std::string why = text_of(support["why"]);
  return dtype + " " + text_of(support["speed"]) + (why.empty() ? "" : " (" + why + ")");
}

std::string device_text(const io::Json& device, bool used) {
  std::string text = text_of(device["device"]) + " " + text_of(device["name"]);
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
  const std::string problem = text_of(driver["problem"]);
  return "NVIDIA " + text_of(driver["version"], "of unknown version") + ", runs CUDA up to " +
         text_of(driver["cuda"], "?") + (problem.empty() ? "" : "; does not start: " + problem);
}

std::string gpu_text(const io::Json& facts) {
  const bool used = facts["device_used"] != "cpu";
  if (facts["gpu"].is_null()) return "used, with kernels that were compiled for it";
  return (used ? "used, but " : "not used: ") + text_of(facts["gpu"]);
}

std::string variables_text(const io::Json& variables) {
  std::string text;
  for (const auto& [name, value] : variables.items())
    text += (text.empty() ? "" : ", ") + name + "=" + text_of(value);
  return text.empty() ? "none that matter are set" : text;
}

std::string step_text(const io::Json& step) {
  std::string text =
      text_of(step["device"]) + " " + text_of(step["precision"]) + ": " + text_of(step["result"]);
  for (const io::Json& failure : step["failures"]) text += "; " + text_of(failure);
  return text;
}

void add_build(const io::Json& facts, Lines& lines) {
  const io::Json &lft = facts["lft"], &torch = facts["libtorch"];
  lines.add("lft", text_of(lft["version"]) + ", commit " + text_of(lft["commit"]) + ", GCC " +
                       text_of(lft["compiler"]) + ", flags " + text_of(lft["flags"]));
  lines.add("images",
            text_of(lft["images"], "built without decoders: trains from prepared data only"));
  lines.add("LibTorch", text_of(torch["version"]) + " in " + text_of(torch["folder"]) +
                            ", CPU kernels " + text_of(torch["cpu_kernels"]) +
                            (torch["cuda_library"].get<bool>() ? ", with its CUDA library"
                                                               : ", without a CUDA library"));
  lines.add("CUDA", lft["cuda_toolkit"].is_string()
                        ? "kernels built with toolkit " + text_of(lft["cuda_toolkit"]) + " for " +
                              text_of(lft["cuda_architectures"], "?")
                        : "kernels not built (no nvcc, or LFT_CUDA=OFF)");
  lines.add("driver", driver_text(facts["driver"]));
  lines.add("GPU", gpu_text(facts));
}

void add_system(const io::Json& system, Lines& lines) {
  lines.add("system", text_of(system["os"], "unknown system") + ", " + text_of(system["kernel"]) +
                          ", " + text_of(system["libc"]));
  lines.add("processor", text_of(system["cpu"]) + ", " + system["cores"].dump() + " cores, " +
                             system["threads"].dump() + " threads used");
  lines.add("memory",
            bytes(system["memory_free_bytes"]) + " free of " + bytes(system["memory_bytes"]));
  const io::Json& disk = system["disk_free_bytes"];
  lines.add("disk", bytes(disk["here"]) + " free here, " + bytes(disk["temporary"]) +
                        " free for temporary files");
}

}  // namespace

std::vector<std::string> doctor_lines(const DoctorReport& report) {
  const io::Json& facts = report.facts;
  Lines lines;
  add_build(facts, lines);
  add_system(facts["system"], lines);
  lines.add("variables", variables_text(facts["variables"]));
  for (const io::Json& device : facts["devices"])
    lines.add("device", device_text(device, device["device"] == facts["device_used"]));
  for (const io::Json& step : facts["steps"]) lines.add("step", step_text(step));
  for (const DoctorProblem& problem : report.problems) lines.add("problem", problem.what);
  if (report.problems.empty())
    lines.add("healthy", "optimizer, loss scaler and device work together");
  lines.add("",
            "(for a bug report: paste all lines above, and the command that "
            "failed with all it printed)");
  return std::move(lines.all);
}

}  // namespace lft::debug
