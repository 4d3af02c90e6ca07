#include "src/checkpoint/tensor_file.h"

#include "kernels/common/error.h"
#include "src/base/hash.h"
#include "src/hf/model_dir.h"
#include "src/hf/weights.h"
#include "src/hf/weights_load.h"
#include "src/io/safetensors.h"

namespace lft::checkpoint {
namespace {

at::Tensor on_host(const at::Tensor& tensor) { return tensor.detach().to(at::kCPU).contiguous(); }

/// The bytes that the writer puts before the tensors.
std::string written_header(const std::string& path, const io::SafetensorsWriter& writer) {
  const io::FileHandle file = io::FileHandle::open_to_read(path);
  std::string header(writer.order().empty() ? file.size() : writer.order().front().offset, '\0');
  file.read_at(0, header.data(), header.size());
  return header;
}

}  // namespace

void refuse_non_finite_tensors(const TensorMap& tensors) {
  for (const auto& [name, tensor] : tensors) {
    if (!at::isFloatingType(tensor.scalar_type())) continue;  // 8-bit quantized values
    const at::Tensor host = on_host(tensor);
    const int64_t index = hf::first_non_finite(host);
    if (index < 0) continue;
    refuse(ErrorKind::kNumeric, "a tensor of the checkpoint is not finite; nothing was saved", name,
           hf::non_finite_text(host, index), "finite numbers only",
           "resume from the last checkpoint");
  }
}

std::string write_tensor_file(const std::string& path, const TensorMap& tensors) {
  std::vector<io::TensorInfo> infos;
  for (const auto& [name, tensor] : tensors) {
    infos.push_back(
        {.name = name, .dtype = hf::to_dtype(tensor.scalar_type()), .shape = tensor.sizes().vec()});
  }
  io::SafetensorsWriter writer(path, infos, {{"format", "pt"}});
  Sha256 hash;
  hash.update(written_header(path, writer));
  for (const io::TensorInfo& info : writer.order()) {
    const at::Tensor host = on_host(tensors.at(info.name));
    hash.update(host.const_data_ptr(), host.nbytes());
    writer.append(host.const_data_ptr(), host.nbytes());
  }
  writer.finish();
  return hash.hex();
}

TensorMap read_tensor_file(const std::string& path) {
  const io::SafetensorsFile file(path);
  TensorMap tensors;
  for (const auto& [name, info] : file.tensors()) tensors[name] = hf::read_tensor(file, info);
  return tensors;
}

}  // namespace lft::checkpoint
