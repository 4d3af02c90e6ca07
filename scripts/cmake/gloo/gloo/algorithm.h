// Declarations for LibTorch's ProcessGroupGloo.hpp, which includes Gloo headers that the wheel
// lacks. Types are only declared here, never instantiated: LibTorch's compiled code is used.
#pragma once
#include <gloo/transport/device.h>
