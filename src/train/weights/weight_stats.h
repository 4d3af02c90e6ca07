// What the values of a checkpoint's tensors look like, row by row and column by column, read piece
// by piece; and which tensors are of one kind. Judges nothing.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/hf/model_dir.h"

namespace lft::train {

/// A tensor as a matrix: of one dimension it is one row, of more than two all dimensions after the
/// first are columns. A value that is not finite counts as 0 in all but `non_finite`.
struct TensorStats {
  int64_t rows = 0, columns = 0, rows_seen = 0;
  int64_t non_finite = 0, first_non_finite = -1;  // the flat index
  double lowest = 0, highest = 0;
  double rms = 0;
  double fourth = 0;                   // the mean of x^4
  std::vector<double> row_squares;     // the sum of squares of each row seen
  std::vector<double> column_squares;  // over the rows seen
  std::vector<int64_t> flat_rows;      // rows that hold one number only
  std::vector<int64_t> flat_columns;   // of two rows or more
  bool flat() const { return lowest == highest; }
  double largest() const { return highest > -lowest ? highest : -lowest; }
  bool whole() const { return rows_seen == rows; }
};
using StatsByName = std::map<std::string, TensorStats>;  // by canonical name

/// Of rows spread evenly over the tensor; their number is chosen so that there are about
/// `most_elements` (0: of all). Holds a piece of the tensor at a time.
TensorStats tensor_stats(const hf::ModelDir& dir, const std::string& name, int64_t most_elements);
/// Of every tensor that the model's output depends on.
StatsByName used_tensor_stats(const hf::ModelDir& dir, int64_t most_elements);

/// "language_model.model.layers.*.mlp.up_proj.weight" and the layer; -1 where there is none.
struct TensorKind {
  std::string kind;
  int64_t layer = -1;
};
TensorKind tensor_kind(const std::string& name);

/// One stack of layers: how its tensors are called, and the heads of its attention.
struct TowerNames {
  std::string label, layers;  // layers: "language_model.model.layers."
  int64_t count = 0;          // layers that the output depends on
  int64_t heads = 1, kv_heads = 1;
  std::string q, k, v, o;           // below a layer, without ".weight"; q, k and v are empty
                                    // where one layer is all three
  std::vector<std::string> into;    // what reads the residual stream
  std::vector<std::string> out_of;  // what writes into it
  std::vector<std::string> mlp_in, norms;
  std::string mlp_out;
  std::vector<std::string> tables;  // tensors before the first layer and after the last
  std::string weight(int64_t layer, const std::string& module) const {
    return layers + std::to_string(layer) + "." + module + ".weight";
  }
};
/// The vision tower and the decoder.
std::vector<TowerNames> towers_of(const family::ModelConfig& config);

/// 1.4826 times the median distance from the median: the standard deviation where they are normal.
double spread_of(const std::vector<double>& values);

}  // namespace lft::train
