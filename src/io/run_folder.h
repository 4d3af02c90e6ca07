// A run's folder (output_dir) given where one thing that the run wrote in it is meant.
#pragma once
#include <string>

namespace lft::io {

/// Each returns `path` as it is, unless it lacks what it should hold and has it in the place where
/// a run writes it.
std::string adapter_folder(const std::string& path);  // <path>/adapter, or <path>/parts
std::string model_folder(const std::string& path);    // <path>/model
/// <path>/incidents/step-<n> or <path>/step-<n>, of the highest n; or eval-step-<n>, which is later
/// than step-<n>.
std::string incident_folder(const std::string& path);

}  // namespace lft::io
