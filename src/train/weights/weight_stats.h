// Statistics of a checkpoint's tensors by row and column, read piece by piece, and the kinds of
// tensors. Contains no judgement.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/hf/model_dir.h"

namespace lft::train {

/// A tensor as a matrix: one dimension is one row, of more than two all dimensions after the first
/// are columns. A non-finite value counts as 0 except in `non_finite`.
struct TensorStats {
  int64_t rows = 0, columns = 0, rows_seen = 0;
  int64_t non_finite = 0, first_non_finite = -1;  // the flat index
  double lowest = 0, highest = 0;
  double rms = 0;
  double fourth = 0;                   // the mean of x^4
  std::vector<double> row_squares;     // the sum of squares of each row read
  std::vector<double> column_squares;  // over the rows read
  std::vector<int64_t> flat_rows;      // rows with only one distinct value
  std::vector<int64_t> flat_columns;   // if there are two or more rows
  bool flat() const { return lowest == highest; }
  double largest() const { return highest > -lowest ? highest : -lowest; }
  bool whole() const { return rows_seen == rows; }
};
using StatsByName = std::map<std::string, TensorStats>;  // by canonical name

/// Statistics of evenly spaced rows, chosen so that there are about `most_elements` (0: all). Keeps
/// one piece of the tensor in memory at a time.
TensorStats tensor_stats(const hf::ModelDir& dir, const std::string& name, int64_t most_elements);
/// For every tensor that the model's output depends on.
StatsByName used_tensor_stats(const hf::ModelDir& dir, int64_t most_elements);

/// "language_model.model.layers.*.mlp.up_proj.weight" and the layer; -1 if there is none.
struct TensorKind {
  std::string kind;
  int64_t layer = -1;
};
TensorKind tensor_kind(const std::string& name);

/// One stack of layers: the names of its tensors, and the heads of its attention.
struct TowerNames {
  std::string label, layers;     // layers: "language_model.model.layers."
  int64_t count = 0;             // layers that the output depends on
  std::vector<int64_t> numbers;  // theirs
  int64_t heads = 1, kv_heads = 1;
  std::string q, k, v, o;           // below a layer, without ".weight"; q, k and v are empty
                                    // if one layer is all three, or if there is no attention
  bool gates = false;               // q has a second output per head
  std::vector<std::string> into;    // matrices that read the residual stream
  std::vector<std::string> out_of;  // matrices that write into it
  std::vector<std::string> mlp_in, norms;
  std::string mlp_out;
  std::vector<std::string> tables;  // tensors before the first layer and after the last
  std::string weight(int64_t layer, const std::string& module) const {
    return layers + std::to_string(layer) + "." + module + ".weight";
  }
};
/// The vision tower and the decoder, or the decoder's layers with and those without attention.
std::vector<TowerNames> towers_of(const family::ModelConfig& config);

/// 1.4826 times the median distance from the median: the standard deviation for normal values.
double spread_of(const std::vector<double>& values);

}  // namespace lft::train
