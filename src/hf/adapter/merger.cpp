#include "src/hf/adapter/merger.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <deque>
#include <future>
#include <nlohmann/json.hpp>
#include <thread>

#include "kernels/common/error.h"
#include "models/ops/core/parallel.h"
#include "models/ops/weight/expert_weight.h"
#include "src/hf/expert_slices.h"
#include "src/hf/tied_head.h"
#include "src/hf/weights.h"
#include "src/hf/weights_load.h"
#include "src/io/files.h"
#include "src/io/json.h"

namespace lft::hf {
namespace {

constexpr const char* kIndex = "model.safetensors.index.json";

/// For A and B only: whether further tensors have an effect depends on the weight.
bool is_no_op(const AdapterTensors& tensors, const lora::Variant& variant) {
  if (!tensors.full.empty()) return false;
  if (!lora::further_tensors(variant).empty()) return tensors.lora.empty();
  const auto is_zero = [](const at::Tensor& tensor) {
    return tensor.count_nonzero().item<int64_t>() == 0;
  };
  return std::all_of(tensors.lora.begin(), tensors.lora.end(), [&](const auto& item) {
    return is_zero(item.second.at("lora_B")) || is_zero(item.second.at("lora_A"));
  });
}

bool is_same(const ModelDir::Place& a, const ModelDir::Place& b) {
  return a.file == b.file && a.stored_name == b.stored_name;
}

at::Tensor rows_of(const at::Tensor& whole, int64_t first, int64_t count) {
  return whole.dim() == 0 ? whole : whole.narrow(0, first, count);
}

at::Tensor cast_merged(const at::Tensor& merged, io::DType dtype, const std::string& where) {
  const at::Tensor cast = merged.to(to_scalar_type(dtype)).contiguous();
  if (first_non_finite(cast) >= 0) {
    refuse(ErrorKind::kNumeric, "a merged weight is not finite", where,
           "beyond the range of " + std::string(io::dtype_name(dtype)), "finite numbers",
           "merge into a copy of the base stored in BF16 or F32");
  }
  return cast;
}

void copy_tensor(const io::SafetensorsFile& source, const io::TensorInfo& info,
                 io::SafetensorsWriter& writer) {
  std::string piece(std::min<uint64_t>(info.bytes, 8u << 20), '\0');
  for (uint64_t done = 0; done < info.bytes;) {
    const uint64_t bytes = std::min<uint64_t>(piece.size(), info.bytes - done);
    source.read_range(info, done, bytes, piece.data());
    writer.append(piece.data(), bytes);
    done += bytes;
  }
}

}  // namespace

Merger::Merger(const ModelDir& base, const AdapterDir& dir, const MergePart& part)
    : base_(base),
      dir_(dir),
      in_float32_(part.in_float32),
      variant_(lora::find_variant(dir.lora.variant)),
      tensors_(read_adapter(dir, base.config)) {
  if (part.takes) {
    std::erase_if(tensors_.lora, [&](const auto& item) { return !part.takes(item.first); });
  }
  list_names();
  for (const family::TensorSpec& spec : base.config.family->layout(base.config).tensors)
    if (spec.experts > 0) shapes_[spec.name] = spec.shape;
  if (is_no_op(tensors_, variant_)) {
    refuse(ErrorKind::kInput, "the adapter is a no-op", dir.path,
           "every lora_B is zero and nothing is saved whole", "a trained adapter");
  }
  check_biases();
  for (const auto& [name, copy] : tensors_.base_copies)
    check_base_copy(copy, read(name), name, dir);
}

std::string Merger::file_name(size_t file) const {
  std::string name = base_.file_names[file];
  std::ranges::replace(name, '/', '-');
  return name;
}

void Merger::write_index(const std::string& out) const {
  const std::string path = base_.path + "/" + kIndex;
  const io::Json stored = io::read_json_file(path);
  io::Json index = stored;
  io::Json &map = index["weight_map"], &metadata = index["metadata"];
  map = io::Json::object();
  uint64_t bytes = 0;
  for (size_t i = 0; i < base_.files.size(); ++i) {
    const io::SafetensorsFile written(out + "/" + file_name(i));
    for (const auto& [name, info] : written.tensors()) {
      map[name] = file_name(i);
      bytes += info.bytes;
    }
  }
  if (!metadata.is_object()) metadata = io::Json::object();
  metadata["total_size"] = bytes;
  io::write_file_atomic(out + "/" + kIndex,
                        index == stored ? io::read_file(path) : pretty_json(index));
}

void Merger::write(size_t file, const std::string& out, const std::function<void()>& poll,
                   MergeReport& report) const {
  const io::SafetensorsFile& source = base_.files[file];
  std::vector<io::TensorInfo> infos;
  for (const auto& [name, info] : source.tensors())
    if (!is_in_later_file(file, name)) infos.push_back(info);
  if (second_table_ && second_table_->file == file) {
    infos.push_back(stored_info(source, second_table_->stored_name));
    infos.back().name = second_table_->stored_name;
  }
  for (io::TensorInfo& info : infos) {
    if (in_float32_ && change_of(file, info.name)) info.dtype = io::DType::kF32;
  }
  io::SafetensorsWriter writer(out + "/" + file_name(file), infos, source.metadata());
  for (const io::TensorInfo& target : writer.order()) {
    if (poll) poll();
    const io::TensorInfo& info = stored_info(source, target.name);
    if (const std::optional<Change> change = change_of(file, target.name)) {
      write_changed(*change, source, info, target.dtype, writer);
      ++report.tensors_merged;
      report.dtypes.insert(target.dtype);
      report.sees_as_before &= change->name.starts_with("language_model.");
    } else {
      copy_tensor(source, info, writer);
    }
  }
  writer.finish();
}

void Merger::list_names() {
  for (const auto& [name, place] : base_.tensors)
    canonical_[{place.file, place.stored_name}] = name;
  for (const auto& [weight, pieces] : base_.expert_pieces) {
    int64_t row = 0;
    for (const std::string& piece : pieces) {
      const ModelDir::Place& place = base_.tensors.at(piece);
      canonical_[{place.file, place.stored_name}] = weight;
      first_rows_[{place.file, place.stored_name}] = row;
      row += base_.info(place).shape.front();
    }
  }
  const ModelDir::Place& embedding = base_.tensors.at(kEmbedding + ".weight");
  const bool tied = base_.config.text.tie_embeddings;
  if (base_.tied_head)
    canonical_[{base_.tied_head->file, base_.tied_head->stored_name}] =
        (tied ? kEmbedding : kHead) + ".weight";
  if (tied || !is_same(base_.tensors.at(kHead + ".weight"), embedding)) return;
  const bool head_alone = embedding.stored_name.ends_with("lm_head.weight");
  const std::string stored = (head_alone ? kHead : kEmbedding) + ".weight",
                    second = (head_alone ? kEmbedding : kHead) + ".weight";
  canonical_[{embedding.file, embedding.stored_name}] = stored;
  const bool old = embedding.stored_name.starts_with("language_model.");  // as in early LLaVA
  second_table_ = {embedding.file, old ? second : base_.config.family->names.peft_name(second)};
  canonical_[{second_table_->file, second_table_->stored_name}] = second;
}

bool Merger::is_in_later_file(size_t file, const std::string& name) const {
  return std::any_of(base_.files.begin() + static_cast<std::ptrdiff_t>(file) + 1, base_.files.end(),
                     [&](const auto& later) { return later.tensors().contains(name); });
}

void Merger::check_biases() const {
  if (variant_.bias_shift_o == nullptr) return;
  for (const auto& [module, tensors] : tensors_.lora) {
    if (base_.tensors.contains(module + ".bias")) continue;
    refuse(ErrorKind::kInput, "the adapter's bias has no place in a merged model",
           dir_.path + ": " + module, variant_.peft_flag + ", and a layer without a bias",
           "an adapter without a bias, or on layers that have one",
           "use the adapter together with its base");
  }
}

const io::TensorInfo& Merger::stored_info(const io::SafetensorsFile& source,
                                          const std::string& name) const {
  const bool is_new = second_table_ && name == second_table_->stored_name;
  return is_new ? base_.info(base_.tensors.at(kEmbedding + ".weight")) : source.info(name);
}

at::Tensor Merger::read(const std::string& canonical) const {
  const ModelDir::Place& place = base_.tensors.at(canonical);
  return read_tensor(base_.files[place.file], base_.info(place));
}

std::optional<Merger::Change> Merger::change_of(size_t file, const std::string& stored) const {
  const auto canonical = canonical_.find({file, stored});
  if (canonical == canonical_.end()) return std::nullopt;
  const std::string& name = canonical->second;
  const bool is_bias = variant_.bias_shift_o != nullptr && name.ends_with(".bias");
  const size_t dot = name.rfind('.');
  const bool may_merge = is_bias || name.ends_with(".weight");
  const auto lora = tensors_.lora.find(may_merge ? name.substr(0, dot) : "");
  const auto full = tensors_.full.find(name);
  Change change{.name = name, .is_bias = is_bias};
  if (full != tensors_.full.end()) change.full = &full->second;
  if (lora != tensors_.lora.end()) {
    change.lora = &lora->second;
    change.scale = lora::lora_scale(dir_.lora.of(lora->first));
  }
  if (change.full == nullptr && change.lora == nullptr) return std::nullopt;
  if (const auto row = first_rows_.find({file, stored}); row != first_rows_.end())
    change.first_row = row->second;
  return change;
}

void Merger::write_changed(const Change& change, const io::SafetensorsFile& source,
                           const io::TensorInfo& info, io::DType dtype,
                           io::SafetensorsWriter& writer) const {
  constexpr int64_t kPiece = 1 << 20;                                // elements
  const int64_t rows = info.shape.empty() ? 1 : info.shape.front();  // or experts
  const int64_t row_elements = std::max<int64_t>(1, info.numel() / std::max<int64_t>(1, rows));
  const int64_t length = std::max<int64_t>(1, kPiece / row_elements);
  const auto merged = [&](int64_t first) {
    const at::NoGradGuard no_grad;
    ops::stay_single_threaded();
    const int64_t count = std::min(length, rows - first);
    return cast_merged(merged_rows(change, source, info, first, count), dtype,
                       source.path() + ": " + info.name);
  };
  std::deque<std::future<at::Tensor>> pieces;
  const auto write_first = [&] {
    const at::Tensor piece = pieces.front().get();
    pieces.pop_front();
    writer.append(piece.const_data_ptr(), piece.nbytes());
  };
  for (int64_t row = 0; row < rows; row += length) {
    if (pieces.size() > std::thread::hardware_concurrency()) write_first();
    pieces.push_back(std::async(std::launch::async, merged, row));
  }
  while (!pieces.empty()) write_first();
}

at::Tensor Merger::merged_rows(const Change& change, const io::SafetensorsFile& source,
                               const io::TensorInfo& info, int64_t first, int64_t count) const {
  if (change.first_row >= 0) return merged_piece(change, source, info, first, count);
  if (base_.config.family->names.is_expert_weight(change.name))
    return merged_experts(change, source, info, first, count);
  const at::Tensor weight = change.full != nullptr
                                ? rows_of(*change.full, first, count)
                                : read_rows(source, info, first, count).to(at::kFloat);
  if (change.lora == nullptr) return weight;
  const lora::NamedTensors tensors = lora::output_rows(*change.lora, first, count);
  return change.is_bias ? weight + variant_.bias_shift_o(tensors, change.scale)
                        : variant_.merged_oi(weight, tensors, change.scale);
}

at::Tensor Merger::merged_experts(const Change& change, const io::SafetensorsFile& source,
                                  const io::TensorInfo& info, int64_t first, int64_t count) const {
  const int64_t experts = info.shape.front();
  const bool transposed = stores_transposed(info, shapes_.at(change.name));
  std::vector<at::Tensor> merged;
  for (int64_t e = first; e < first + count; ++e) {
    at::Tensor weight;
    if (change.full != nullptr) {
      weight = ops::expert_rows(*change.full, e, experts);
    } else {
      const at::Tensor stored = read_rows(source, info, e, 1).squeeze(0).to(at::kFloat);
      weight = transposed ? stored.t() : stored;
    }
    if (change.lora != nullptr)
      weight =
          variant_.merged_oi(weight, lora::expert_tensors(*change.lora, e, experts), change.scale);
    merged.push_back(transposed ? weight.t() : weight);
  }
  return at::stack(merged);
}

at::Tensor Merger::merged_piece(const Change& change, const io::SafetensorsFile& source,
                                const io::TensorInfo& info, int64_t first, int64_t count) const {
  const int64_t experts = base_.config.text.experts.count,
                out = shapes_.at(change.name)[0] / experts, row = change.first_row + first;
  const at::Tensor weight = change.full != nullptr
                                ? rows_of(*change.full, row, count)
                                : read_rows(source, info, first, count).to(at::kFloat);
  if (change.lora == nullptr) return weight;
  const lora::NamedTensors own = lora::expert_tensors(*change.lora, row / out, experts);
  return variant_.merged_oi(weight, lora::output_rows(own, row % out, count), change.scale);
}

}  // namespace lft::hf
