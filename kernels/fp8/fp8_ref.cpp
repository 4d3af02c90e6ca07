#include <algorithm>

#include "kernels/fp8/fp8.h"

namespace lft {

void fp8_quantize_rows_ref(const Fp8Rows& rows) {
  for (int64_t row = 0; row < rows.rows; ++row) {
    const int64_t first = row * rows.cols;
    uint32_t most = 0;
    for (int64_t c = 0; c < rows.cols; ++c)
      most = std::max(most, float_to_bits(load_float(rows.type, rows.x, first + c)) & 0x7FFFFFFFu);
    const Fp8RowScale scale = fp8_row_scale(most);
    rows.scales[row] = scale.scale;
    for (int64_t c = 0; c < rows.cols; ++c)
      rows.codes[first + c] = to_e4m3(load_float(rows.type, rows.x, first + c) * scale.up);
  }
}

}  // namespace lft
