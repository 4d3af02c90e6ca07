// Values of one row that are not finite, outside training: the first module with such an output,
// and the token or image of the row.
#pragma once
#include <ATen/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/common/error.h"
#include "models/family/family.h"
#include "src/data/dataset.h"
#include "src/data/encode_options.h"
#include "src/text/tokenizer.h"

namespace lft::infer {

/// The positions whose label is not -100, in order.
std::vector<int64_t> supervised_positions(const data::Sample& row);

/// The token or image of a row that an output belongs to; -1: unknown.
struct RowPlace {
  int64_t position = -1;  // of the row's ids
  int64_t image = -1;     // of the row's images
};
/// The place of a flat index into a module's output, for a pass of this row alone. The decoder's
/// outputs are [1, positions, d], those after it [supervised, ...] or [1, supervised, d], and those
/// before it [images, ...].
RowPlace place_in_row(const std::string& module, const std::vector<int64_t>& shape, int64_t index,
                      const data::Sample& row);

struct NonFinite {
  /// The first module whose output is not finite; empty: none in a pass of this row alone.
  std::string module = {};
  RowPlace place = {};
  int64_t token = -1;                // the id at place.position
  std::vector<int64_t> answer = {};  // the ids generated before it, if the row was being answered
};

/// Runs `pass`, the forward pass of this row alone, and checks every module's output.
NonFinite find_non_finite(const data::Sample& row, const std::function<void()>& pass);

/// The same for the loss of a row, with the caller's guards.
NonFinite explain_loss(family::Model& model, const data::Sample& row,
                       const data::EncodeOptions& encode, at::ScalarType compute);

/// `row-7, position 12 (token "z")`. Without a tokenizer the token is named by its id.
std::string row_text(const std::string& id, const NonFinite& bad, const text::Tokenizer* tokenizer);
/// The error of such a row, kNumeric: row_text(), the module, and what helps in a pass that
/// computed in `compute`.
Error non_finite_error(const std::string& row, const std::string& module, at::ScalarType compute);

}  // namespace lft::infer
