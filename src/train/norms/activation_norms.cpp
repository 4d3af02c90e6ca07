#include "src/train/norms/activation_norms.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "models/family/scopes.h"
#include "models/lora/trained_modules.h"
#include "models/ops/update/grad_stats.h"

namespace lft::train {
namespace {

const std::string kProjector = std::string(family::kProjector, sizeof family::kProjector - 2);

/// The end of the first name component that is a number; npos if there is none.
size_t end_of_number(const std::string& name) {
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    if (end > begin && name.find_first_not_of("0123456789", begin) >= end) return end;
    begin = end + 1;
  }
  return std::string::npos;
}

bool is_layer(const std::string& path) {
  return path == kProjector || (end_of_number(path) != std::string::npos && layer_of(path) == path);
}

/// Whether this thread is in a backward pass.
bool differentiates() { return torch::autograd::get_current_graph_task_id() != -1; }

/// Concatenates all rows: the only host read.
template <class Rows>
std::vector<double> read_squares(const Rows& rows) {
  std::vector<at::Tensor> all;
  for (const auto& row : rows) all.insert(all.end(), row.squares.begin(), row.squares.end());
  const at::Tensor host = at::cat(all).cpu();
  const double* values = host.const_data_ptr<double>();
  return {values, values + host.numel()};
}

template <class Rows>
auto row_of(Rows& rows, const std::string& layer) {
  return std::ranges::find_if(rows, [&](const auto& row) { return row.layer == layer; });
}

}  // namespace

std::string layer_of(const std::string& name) {
  if (name.starts_with(kProjector)) return kProjector;
  if (const size_t end = end_of_number(name); end != std::string::npos) return name.substr(0, end);
  return lora::module_of(name);
}

std::vector<LayerValue> layer_grad_norms(const Optimizer& optimizer,
                                         const std::vector<double>& norms) {
  std::vector<LayerValue> layers;
  for (size_t i = 0; i < norms.size(); ++i) {
    const std::string layer = layer_of(optimizer.slots()[i].param.name);
    auto found = row_of(layers, layer);
    if (found == layers.end()) found = layers.insert(layers.end(), {layer, 0});
    found->value = std::hypot(found->value, norms[i]);
  }
  return layers;
}

void ActivationNorms::after(const std::string& path, const torch::nn::Module& module,
                            const std::vector<at::Tensor>& outputs) {
  if (outputs.empty() || !is_layer(path) || differentiates()) return;
  const at::Tensor& output = outputs.front();
  const at::Tensor squares =
      ops::check_gradients({output.detach()}, /*inv_scale=*/1, /*max_norm=*/0, /*loss=*/{}).squares;
  const auto found = row_of(sums_, path);
  if (found == sums_.end()) {
    sums_.push_back({path, {squares}, output.numel()});
  } else {
    found->squares.push_back(squares);
    found->elements += output.numel();
  }
}

void ActivationNorms::clear() { sums_.clear(); }

io::Json ActivationNorms::seen() const {
  io::Json json = io::Json::array();
  if (sums_.empty()) return json;
  const std::vector<double> values = read_squares(sums_);
  const double* value = values.data();
  for (const Sum& sum : sums_) {
    std::vector<uint64_t> bits;
    for (size_t i = 0; i < sum.squares.size(); ++i)
      bits.push_back(std::bit_cast<uint64_t>(*value++));
    json.push_back({sum.layer, bits, sum.elements});
  }
  return json;
}

void ActivationNorms::add(const io::Json& seen) {
  for (const io::Json& row : seen) {
    const auto layer = row.at(0).get<std::string>();
    auto found = row_of(sums_, layer);
    if (found == sums_.end()) found = sums_.insert(sums_.end(), Sum{layer, {}, 0});
    for (const uint64_t bits : row.at(1).get<std::vector<uint64_t>>())
      found->squares.push_back(at::full({1}, std::bit_cast<double>(bits), at::kDouble));
    found->elements += row.at(2).get<int64_t>();
  }
}

std::vector<LayerValue> ActivationNorms::rms() const {
  std::vector<LayerValue> layers;
  if (sums_.empty()) return layers;
  const std::vector<double> values = read_squares(sums_);
  const double* value = values.data();
  for (const Sum& sum : sums_) {
    double total = 0;
    for (size_t i = 0; i < sum.squares.size(); ++i) total += *value++;
    layers.push_back({sum.layer, std::sqrt(total / static_cast<double>(sum.elements))});
  }
  return layers;
}

}  // namespace lft::train
