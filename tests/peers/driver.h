// Shared code of this folder's programs that convert one safetensors file to another.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdio>
#include <map>
#include <string>

#include "src/base/errors.h"
#include "src/hf/weights.h"

namespace lft::test {

using Tensors = std::map<std::string, at::Tensor>;

/// `main` of a program called with IN and OUT: OUT receives the result of drive(tensors of IN).
template <class Drive>
int drive_files(int count, char** arguments, const Drive& drive) {
  if (count != 3) {
    std::fprintf(stderr, "%s IN OUT\n", arguments[0]);
    return 2;
  }
  try {
    const io::SafetensorsFile file(arguments[1]);
    Tensors in;
    for (const auto& [name, info] : file.tensors()) in[name] = hf::read_tensor(file, info);
    hf::write_tensors(arguments[2], drive(in));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

}  // namespace lft::test
