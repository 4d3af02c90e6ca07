// Runs one part of lft for the tests of this folder: `peer_driver NAME IN OUT` converts the tensors
// of the safetensors file IN to those of OUT; `peer_driver scaler` reads standard input.
#include <exception>
#include <iostream>

#include "peers/driver.h"
#include "src/hf/weights.h"

namespace {

using namespace lft;
using test::Tensors;

const std::map<std::string, Tensors (*)(const Tensors&)> kConversions = {
    {"adamw8", test::drive_adamw8},
    {"fp8", test::drive_fp8},
    {"nf4", test::drive_nf4},
    {"rule", test::drive_rule},
};

void convert(const std::string& name, const std::string& in, const std::string& out) {
  const io::SafetensorsFile file(in);
  Tensors tensors;
  for (const auto& [key, info] : file.tensors()) tensors[key] = hf::read_tensor(file, info);
  hf::write_tensors(out, kConversions.at(name)(tensors));
}

}  // namespace

int main(int count, char** arguments) {
  try {
    if (count == 2 && std::string(arguments[1]) == "scaler") {
      lft::test::drive_scaler();
    } else if (count == 4) {
      convert(arguments[1], arguments[2], arguments[3]);
    } else {
      std::cerr << "peer_driver NAME IN OUT, or peer_driver scaler\n";
      return 2;
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
