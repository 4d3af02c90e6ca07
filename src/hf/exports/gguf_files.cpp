#include "src/hf/exports/gguf_files.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "kernels/common/error.h"
#include "models/lora/registry.h"
#include "src/hf/adapter/model_files.h"
#include "src/hf/exports/gguf_vocabulary.h"
#include "src/hf/interop/interop.h"
#include "src/hf/weights.h"
#include "src/hf/weights_load.h"
#include "src/io/files.h"
#include "src/io/gguf/gguf.h"
#include "src/text/chat/jinja_template.h"
#include "src/text/chat/named_form.h"
#include "src/text/tokenizer.h"

namespace lft::hf {
namespace {

using Make = GgufTensor::Make;

/// Value of llama_ftype.
uint32_t file_type(io::DType dtype) {
  return dtype == io::DType::kF16 ? 1 : dtype == io::DType::kBF16 ? 32 : 0;
}

/// Interleaves the first and the second half of the rows of each head; `back` reverses it.
at::Tensor interleaved(const at::Tensor& tensor, int64_t heads, bool back = false) {
  std::vector<int64_t> parts = {heads, 2, tensor.size(0) / heads / 2, -1};
  if (back) std::swap(parts[1], parts[2]);
  return tensor.reshape(parts).transpose(1, 2).reshape(tensor.sizes()).contiguous();
}

std::vector<int64_t> shape_of(const GgufTensor& tensor, std::vector<int64_t> shape) {
  if (tensor.make == Make::kFrame) shape.erase(shape.begin() + 2);
  if (tensor.make == Make::kRows) shape[0] /= tensor.count;
  return shape;
}

at::Tensor made(const GgufTensor& tensor, const at::Tensor& stored) {
  switch (tensor.make) {
    case Make::kInterleaved:
      return interleaved(stored, tensor.count);
    case Make::kFrame:
      return stored.select(2, tensor.part);
    case Make::kRows:
      return stored.narrow(0, tensor.part * (stored.size(0) / tensor.count),
                           stored.size(0) / tensor.count);
    case Make::kAsIs:
      break;
  }
  return stored;
}

at::Tensor stored_of(const GgufJob& job, const GgufTensor& tensor) {
  const ModelDir::Place& place = job.model.tensors.at(tensor.canonical);
  return read_tensor(job.model.files[place.file], job.model.info(place));
}

/// The contents of one tensor of the file.
at::Tensor contents_of(const GgufJob& job, const GgufTensor& tensor, io::DType dtype) {
  return made(tensor, stored_of(job, tensor)).to(to_scalar_type(dtype)).contiguous();
}

/// The largest value is finite in F16, and large enough that the spacing of F16's smallest values
/// is at most that of the largest.
bool half_holds(const at::Tensor& stored) {
  const auto [low, high] = at::aminmax(stored);
  const double largest = std::max(-low.item<double>(), high.item<double>());
  return largest == 0 || (largest >= 0x1p-14 && largest <= 65504);
}

bool single(const GgufTensor& tensor, const std::vector<int64_t>& shape) {
  return tensor.single || shape.size() == 1;
}

io::DType type_of(const GgufJob& job, const GgufTensor& tensor, const io::TensorInfo& stored,
                  const std::vector<int64_t>& shape) {
  if (single(tensor, shape)) return io::DType::kF32;
  const bool narrows = job.dtype == io::DType::kF16 && stored.dtype != job.dtype;
  return narrows && !half_holds(stored_of(job, tensor)) ? stored.dtype : job.dtype;
}

/// Checks that the file contains each tensor bitwise.
void check_written(const GgufJob& job, const std::string& path,
                   const std::vector<GgufTensor>& tensors,
                   const std::vector<io::TensorInfo>& infos) {
  const io::GgufFile written(path);
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (job.poll) job.poll();
    const io::TensorInfo& read = written.info(infos[i].name);
    bool same = read.shape == infos[i].shape && read.dtype == infos[i].dtype;
    if (same) {
      const at::Tensor want = contents_of(job, tensors[i], read.dtype);
      at::Tensor got = at::empty_like(want);
      written.read(read, got.mutable_data_ptr());
      same = std::memcmp(got.const_data_ptr(), want.const_data_ptr(), want.nbytes()) == 0;
    }
    if (!same)
      throw Error(ErrorKind::kInternal, "the export reads back otherwise: " + infos[i].name);
  }
}

/// Writes one of the two files and compares it with the source. Returns the number of matrices that
/// are not in the job's type.
int64_t write_file(const GgufJob& job, const std::string& path, const io::GgufKeys& keys,
                   const std::vector<GgufTensor>& tensors) {
  std::vector<io::TensorInfo> infos;
  int64_t kept = 0;
  for (const GgufTensor& tensor : tensors) {
    if (job.poll) job.poll();
    const io::TensorInfo& stored = job.model.info(job.model.tensors.at(tensor.canonical));
    io::TensorInfo info;
    info.name = tensor.name;
    info.shape = shape_of(tensor, stored.shape);
    info.dtype = type_of(job, tensor, stored, info.shape);
    kept += !single(tensor, info.shape) && info.dtype != job.dtype;
    infos.push_back(std::move(info));
  }
  io::GgufWriter writer(path, keys, infos);
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (job.poll) job.poll();
    const at::Tensor tensor = contents_of(job, tensors[i], infos[i].dtype);
    writer.append(tensor.const_data_ptr(), tensor.nbytes());
  }
  writer.finish();
  check_written(job, path, tensors, infos);
  return kept;
}

io::GgufKeys general(const std::string& architecture, const char* type, const std::string& name,
                     io::DType dtype) {
  return {{"general.architecture", architecture},
          {"general.type", std::string(type)},
          {"general.name", name},
          {"general.file_type", file_type(dtype)}};
}

void append(io::GgufKeys* keys, const io::GgufKeys& more) {
  keys->insert(keys->end(), more.begin(), more.end());
}

/// The prompt template for llama.cpp: the trained one, else the model's.
std::string jinja(const GgufJob& job) {
  const std::string trained =  // llama.cpp's server writes this marker for an image
      jinja_of(job.notes, job.model.config, "<__media");
  if (!trained.empty()) return trained;
  const auto own = text::find_template(job.model.path);
  return own ? own->text : "";
}

/// The token that ends an answer of the template, if it may differ from the tokenizer's.
std::string end_of_turn(const GgufJob& job, const std::string& jinja) {
  if (jinja.empty() || text::is_named_form(job.notes.input.template_name)) return "";
  const auto tokenizer = text::Tokenizer::load(job.model.path);
  return text::jinja_template({.text = jinja, .where = "chat template"}, *tokenizer,
                              {.ends = {tokenizer->eos_token()},
                               .placeholder = job.model.config.family->placeholder})
      ->end();
}

/// The image processor's file with the settings of the training.
io::Json processor_file(const GgufJob& job) {
  const ModelDir& model = job.model;
  return model.config.family->processor_fitted(model.config, image_processor_json(model.path),
                                               family::image_rules(job.notes.input));
}

std::shared_ptr<const family::ImageProcessor> processor_of(const GgufJob& job,
                                                           const io::Json& file) {
  const ModelDir& model = job.model;
  const family::Family& family = *model.config.family;
  std::vector<std::string> notices;
  return family.image_processor(model.config,
                                {.json = file, .where = model.path, .folder = model.path},
                                {.fit = family.defaults(model.config, file).image_fit}, &notices);
}

void add_processor(const GgufJob& job, const GgufForm& form, io::GgufKeys* keys) {
  const io::Json file = processor_file(job);
  const auto processor = processor_of(job, file);
  keys->emplace_back("clip.vision.image_mean", processor->mean);
  keys->emplace_back("clip.vision.image_std", processor->std);
  for (const GgufForm::FromProcessor& each : form.from_processor) {
    const io::Json::json_pointer pointer(each.pointer);
    const bool is_set = file.contains(pointer) && file.at(pointer).is_number_unsigned();
    keys->emplace_back(each.key, is_set ? file.at(pointer).get<uint32_t>() : each.otherwise);
  }
}

/// The decoder weights that may have LoRA, by canonical module.
std::map<std::string, GgufTensor> weights_of(const GgufForm& form) {
  constexpr std::string_view kWeight = ".weight";
  std::map<std::string, GgufTensor> weights;
  for (const GgufTensor& tensor : form.text_tensors) {
    if (!tensor.canonical.ends_with(kWeight)) continue;
    weights.emplace(tensor.canonical.substr(0, tensor.canonical.size() - kWeight.size()), tensor);
  }
  return weights;
}

at::Tensor read_single(const io::GgufFile& file, const std::string& name) {
  const io::TensorInfo& info = file.info(name);
  if (info.dtype != io::DType::kF32 || info.shape.size() != 2)
    refuse(ErrorKind::kInput, "not a matrix of LoRA", file.path() + ": " + name,
           io::dtype_name(info.dtype), "F32 of two dimensions");
  at::Tensor tensor = at::empty(info.shape, at::kFloat);
  file.read(info, tensor.mutable_data_ptr());
  return tensor;
}

}  // namespace

std::string gguf_image_options(const GgufJob& job) {
  const family::InputSettings& input = job.notes.input;
  if (input.min_pixels <= 0 && input.max_pixels <= 0) return "";
  const io::Json rules = processor_of(job, processor_file(job))->identity();
  if (!rules.contains("position")) return "";  // mmproj.gguf has the size of images
  const auto side = rules.at("position").get<int64_t>(), position = side * side;
  std::string options;
  if (input.min_pixels > 0)
    options +=
        " --image-min-tokens " + std::to_string((input.min_pixels + position - 1) / position);
  if (input.max_pixels > 0)
    options +=
        " --image-max-tokens " + std::to_string(std::max<int64_t>(input.max_pixels / position, 1));
  return options;
}

io::DType gguf_type(io::DType stored) {
  return stored == io::DType::kBF16 ? io::DType::kF16 : stored;
}

int64_t write_gguf_model(const GgufJob& job, const std::string& folder) {
  const at::NoGradGuard no_grad;
  const GgufForm form = gguf_form(job.model.config);
  io::GgufKeys text = general(form.architecture, "model", job.name, job.dtype);
  append(&text, form.text);
  const std::string prompt = jinja(job);
  append(&text,
         gguf_vocabulary(job.model.path, job.model.config.text.vocab, end_of_turn(job, prompt)));
  if (!prompt.empty()) text.emplace_back("tokenizer.chat_template", prompt);
  const int64_t kept = write_file(job, folder + "/model.gguf", text, form.text_tensors);
  io::GgufKeys vision = general("clip", "mmproj", job.name, job.dtype);
  append(&vision, form.vision);
  add_processor(job, form, &vision);
  return kept + write_file(job, folder + "/mmproj.gguf", vision, form.vision_tensors);
}

void write_gguf_lora(const ModelDir& model, const Updates& updates, const std::string& path) {
  const at::NoGradGuard no_grad;
  const GgufForm form = gguf_form(model.config);
  const std::map<std::string, GgufTensor> weights = weights_of(form);
  io::GgufKeys keys = general(form.architecture, "adapter", "lora", io::DType::kF32);
  keys.emplace_back("adapter.type", std::string("lora"));
  keys.emplace_back("adapter.lora.alpha", static_cast<float>(updates.lora.alpha));
  std::vector<io::TensorInfo> infos;
  std::vector<at::Tensor> tensors;
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    io::TensorInfo info;
    info.name = name;
    info.shape = tensor.sizes().vec();
    infos.push_back(std::move(info));
    tensors.push_back(tensor.contiguous());
  };
  for (const auto& [module, parts] : updates.tensors) {
    const GgufTensor& weight = weights.at(module);
    const at::Tensor& up = parts.at("lora_B");
    add(weight.name + ".lora_a", parts.at("lora_A"));
    add(weight.name + ".lora_b",
        weight.make == Make::kInterleaved ? interleaved(up, weight.count) : up);
  }
  io::GgufWriter writer(path, keys, infos);
  for (const at::Tensor& tensor : tensors) writer.append(tensor.const_data_ptr(), tensor.nbytes());
  writer.finish();
}

Updates read_gguf_lora(const ModelDir& model, const std::string& path) {
  const at::NoGradGuard no_grad;
  const io::GgufFile file(path);
  const auto alpha = file.keys().find("adapter.lora.alpha");
  if (alpha == file.keys().end() || !std::holds_alternative<float>(alpha->second))
    refuse(ErrorKind::kInput, "not a GGUF of LoRA", path, "no adapter.lora.alpha", "a number");
  Updates updates{.lora = {.variant = lora::variants().front().name,
                           .rank = 0,
                           .alpha = std::get<float>(alpha->second)},
                  .tensors = {}};
  for (const auto& [module, weight] : weights_of(gguf_form(model.config))) {
    if (!file.tensors().contains(weight.name + ".lora_a")) continue;
    const at::Tensor up = read_single(file, weight.name + ".lora_b");
    updates.tensors[module] = {
        {"lora_A", read_single(file, weight.name + ".lora_a")},
        {"lora_B",
         weight.make == Make::kInterleaved ? interleaved(up, weight.count, /*back=*/true) : up}};
    updates.lora.rank = up.size(1);
  }
  return updates;
}

}  // namespace lft::hf
