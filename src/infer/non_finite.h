// The values of one row that are not finite, outside training: which module's output is the first,
// and at which token or image of the row.
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

/// Where the row's labels are not -100, in order.
std::vector<int64_t> supervised_positions(const data::Sample& row);

/// Where in a row an output belongs; -1: unknown.
struct RowPlace {
  int64_t position = -1;  // of the row's ids
  int64_t image = -1;     // of the row's images
};
/// The place of a flat index into a module's output, where the row runs alone. The decoder's
/// outputs are [1, positions, d], those of its end [supervised, ...] or [1, supervised, d]; what
/// comes before the decoder is [images, ...].
RowPlace place_in_row(const std::string& module, const std::vector<int64_t>& shape, int64_t index,
                      const data::Sample& row);

struct NonFinite {
  /// The first whose output is not finite; empty: none where the row runs alone.
  std::string module = {};
  RowPlace place = {};
  int64_t token = -1;                // the id at place.position
  std::vector<int64_t> answer = {};  // the ids drawn before it, where the row was being answered
};

/// Runs `pass`, the forward pass of this row alone, and looks at every module's output.
NonFinite find_non_finite(const data::Sample& row, const std::function<void()>& pass);

/// The same of a row's loss, under the guards that the caller has set.
NonFinite explain_loss(family::Model& model, const data::Sample& row,
                       const data::EncodeOptions& encode, at::ScalarType compute);

/// `row-7, position 12 (token "z")`. Without a tokenizer the token is named by its id.
std::string row_text(const std::string& id, const NonFinite& bad, const text::Tokenizer* tokenizer);
/// The error of such a row, kNumeric: row_text(), the module, and what helps in a pass that
/// computed in `compute`.
Error non_finite_error(const std::string& row, const std::string& module, at::ScalarType compute);

}  // namespace lft::infer
