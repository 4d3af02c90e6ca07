#include "src/train/weights/weight_stats.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cmath>

#include "src/base/numeric.h"
#include "src/hf/weights_load.h"

namespace lft::train {
namespace {

// Below 32,768 elements ATen uses one thread: a hundred small parallel sections per second cost
// more than they save, and ten times as much on a busy machine.
constexpr int64_t kPieceElements = 24'000;
constexpr int64_t kLeastRows = 8;

/// Sums over the rows read so far.
struct StatsSums {
  TensorStats stats;
  at::Tensor column_squares, column_low, column_high;
  double squares = 0, fourths = 0;

  void add(const at::Tensor& stored, const std::vector<int64_t>& row_numbers);
  TensorStats finish();
};

std::vector<double> doubles_of(const at::Tensor& tensor) {
  const double* data = tensor.const_data_ptr<double>();
  return {data, data + tensor.numel()};
}

void StatsSums::add(const at::Tensor& stored, const std::vector<int64_t>& row_numbers) {
  at::Tensor x = stored.to(at::kDouble);
  const at::Tensor odd = at::isfinite(x).logical_not_();
  if (const int64_t count = odd.sum().item<int64_t>(); count > 0) {
    if (stats.non_finite == 0) {
      const int64_t at = odd.flatten().nonzero()[0].item<int64_t>();
      stats.first_non_finite = row_numbers[at / stats.columns] * stats.columns + at % stats.columns;
    }
    stats.non_finite += count;
    x = at::where(odd, at::zeros({}, at::kDouble), x);
  }
  const at::Tensor square = x.square(), rows = square.sum(1).contiguous();
  const at::Tensor low = x.amin(1).contiguous(), high = x.amax(1).contiguous();
  for (size_t i = 0; i < row_numbers.size(); ++i) {
    const double lowest = low.const_data_ptr<double>()[i],
                 highest = high.const_data_ptr<double>()[i];
    if (lowest == highest && stats.columns > 1) stats.flat_rows.push_back(row_numbers[i]);
    stats.lowest = stats.rows_seen == 0 ? lowest : std::min(stats.lowest, lowest);
    stats.highest = stats.rows_seen == 0 ? highest : std::max(stats.highest, highest);
    stats.row_squares.push_back(rows.const_data_ptr<double>()[i]);
    squares += stats.row_squares.back();
    ++stats.rows_seen;
  }
  fourths += square.square().sum().item<double>();
  const at::Tensor columns = square.sum(0), column_least = x.amin(0), column_most = x.amax(0);
  column_squares = column_squares.defined() ? column_squares + columns : columns;
  column_low = column_low.defined() ? at::minimum(column_low, column_least) : column_least;
  column_high = column_high.defined() ? at::maximum(column_high, column_most) : column_most;
}

TensorStats StatsSums::finish() {
  const double count = static_cast<double>(stats.rows_seen) * static_cast<double>(stats.columns);
  stats.rms = std::sqrt(squares / count);
  stats.fourth = fourths / count;
  stats.column_squares = doubles_of(column_squares.contiguous());
  if (stats.rows_seen > 1) {
    const std::vector<double> low = doubles_of(column_low.contiguous());
    const std::vector<double> high = doubles_of(column_high.contiguous());
    for (size_t i = 0; i < low.size(); ++i) {
      if (low[i] == high[i]) stats.flat_columns.push_back(static_cast<int64_t>(i));
    }
  }
  return std::move(stats);
}

/// Reads these rows from their positions in the file; adjacent rows in one read.
at::Tensor read_rows(const io::SafetensorsFile& file, const io::TensorInfo& info,
                     const std::vector<int64_t>& rows, int64_t columns) {
  at::Tensor piece = at::empty({static_cast<int64_t>(rows.size()), columns},
                               at::TensorOptions(hf::to_scalar_type(info.dtype)));
  const uint64_t bytes = static_cast<uint64_t>(columns * io::dtype_size(info.dtype));
  char* to = static_cast<char*>(piece.data_ptr());
  for (size_t i = 0; i < rows.size();) {
    size_t end = i + 1;
    while (end < rows.size() && rows[end] == rows[end - 1] + 1) ++end;
    file.read_range(info, static_cast<uint64_t>(rows[i]) * bytes, (end - i) * bytes,
                    to + i * bytes);
    i = end;
  }
  return piece;
}

/// Whether a norm multiplies by 1 + w: that sum is then judged.
bool adds_one(const family::ModelConfig& config, const std::string& name) {
  return config.text.norms_add_one && !name.starts_with("vision_tower.") &&
         !name.ends_with("linear_attn.norm.weight") && name.ends_with("norm.weight");
}

bool is_below(const std::string& name, const std::vector<std::string>& modules) {
  return std::any_of(modules.begin(), modules.end(),
                     [&](const std::string& module) { return name.starts_with(module + "."); });
}

}  // namespace

TensorStats tensor_stats(const hf::ModelDir& dir, const std::string& name, int64_t most_elements) {
  const hf::ModelDir::Place& place = dir.tensors.at(name);
  const io::TensorInfo& info = dir.info(place);
  StatsSums sums;
  const size_t dims = info.shape.size();
  sums.stats.rows = dims < 2 ? 1 : dims == 3 ? info.shape[0] * info.shape[1] : info.shape[0];
  sums.stats.columns = info.numel() / sums.stats.rows;
  const int64_t rows = sums.stats.rows, columns = sums.stats.columns;
  int64_t seen = rows;
  if (most_elements > 0) seen = std::min(rows, std::max(kLeastRows, most_elements / columns));
  const int64_t piece_rows = std::max<int64_t>(1, kPieceElements / columns);
  for (int64_t begin = 0; begin < seen; begin += piece_rows) {
    std::vector<int64_t> numbers;
    for (int64_t i = begin; i < std::min(seen, begin + piece_rows); ++i)
      numbers.push_back(i * rows / seen);
    const at::Tensor piece = read_rows(dir.files[place.file], info, numbers, columns);
    sums.add(adds_one(dir.config, name) ? piece.to(at::kDouble) + 1 : piece, numbers);
  }
  return sums.finish();
}

StatsByName used_tensor_stats(const hf::ModelDir& dir, int64_t most_elements) {
  const std::vector<std::string> unused = dir.config.family->vision(dir.config).unused_modules;
  StatsByName stats;
  for (const auto& [name, place] : dir.tensors) {
    if (!is_below(name, unused)) stats.emplace(name, tensor_stats(dir, name, most_elements));
  }
  return stats;
}

TensorKind tensor_kind(const std::string& name) {
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    if (!part.empty() && part.size() < 10 &&
        part.find_first_not_of("0123456789") == std::string::npos) {
      return {name.substr(0, begin) + "*" + name.substr(end), std::stoll(part)};
    }
    begin = end + 1;
  }
  return {name, -1};
}

TowerNames names_of(const family::Tower& tower) {
  TowerNames names;
  names.label = tower.label;
  names.layers = tower.layers;
  names.count = tower.count;
  names.numbers = tower.numbers;
  for (int64_t i = 0; tower.numbers.empty() && i < tower.count; ++i) names.numbers.push_back(i);
  names.heads = tower.heads;
  names.kv_heads = tower.kv_heads;
  if (tower.qkv.size() == 3) {
    names.q = tower.qkv[0];
    names.k = tower.qkv[1];
    names.v = tower.qkv[2];
  }
  names.o = tower.o;
  if (!tower.sparse) {
    names.mlp_in = tower.mlp_in;
    names.mlp_out = tower.mlp_out;
  }
  names.norms = tower.norms;
  names.tables = tower.tables;
  names.into = tower.qkv;
  names.into.insert(names.into.end(), names.mlp_in.begin(), names.mlp_in.end());
  names.out_of = {tower.o};
  if (!names.mlp_out.empty()) names.out_of.push_back(names.mlp_out);
  return names;
}

std::vector<TowerNames> towers_of(const family::ModelConfig& config) {
  const family::ModelLayout layout = config.family->layout(config);
  std::vector<TowerNames> towers = {names_of(layout.vision)};
  for (const family::Tower& tower : layout.decoder) {
    towers.push_back(names_of(tower));
    towers.back().gates = config.text.gated_attention && towers.back().q != "";
  }
  return towers;
}

double spread_of(const std::vector<double>& values) {
  const double middle = median(values);
  std::vector<double> distances;
  for (const double value : values) distances.push_back(std::abs(value - middle));
  return 1.4826 * median(distances);
}

}  // namespace lft::train
