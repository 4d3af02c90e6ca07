// Finds an output of a run from its run folder (output_dir).
#pragma once
#include <string>

namespace lft::io {

/// Each returns `path` unchanged, unless it lacks the expected files and contains them in the
/// subfolder that a run writes.
std::string adapter_folder(const std::string& path);  // <path>/adapter, or <path>/parts
std::string model_folder(const std::string& path);    // <path>/model
/// <path>/incidents/step-<n> or <path>/step-<n>, of the highest n; or eval-step-<n>, which is later
/// than step-<n>.
std::string incident_folder(const std::string& path);

}  // namespace lft::io
